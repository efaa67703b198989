//! What a host may send: any bytes, in any pieces, are frames or an error, and what is understood is
//! understood the same after it was encoded again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stead_wire::{CommandSpec, FrameDecoder, MAX_FRAME, ToSupervisor, frame};

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    let mut decoder = FrameDecoder::new(MAX_FRAME);
    for part in bytes.chunks(usize::from(piece) + 1) {
        decoder.push(part);
        while let Ok(Some(received)) = decoder.next_frame() {
            let Ok(message) = received.message::<ToSupervisor>() else { return };
            if matches!(message, ToSupervisor::Start { .. }) {
                let _ = postcard::take_from_bytes::<CommandSpec>(&received.body);
            }
            let mut again = Vec::new();
            frame::encode(&message, &received.body, &mut again).expect("it came as a frame");
            let mut decoder = FrameDecoder::new(MAX_FRAME);
            decoder.push(&again);
            let second = decoder.next_frame().expect("valid").expect("whole");
            assert_eq!(second.message::<ToSupervisor>().expect("valid"), message);
            assert_eq!(second.body, received.body);
        }
        assert!(decoder.pending() <= bytes.len());
    }
});
