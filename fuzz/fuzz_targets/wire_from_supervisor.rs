//! What a place may send: any bytes, in any pieces, are frames or an error, and what is understood is
//! understood the same after it was encoded again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stead_wire::{FrameDecoder, FromSupervisor, MAX_FRAME, frame};

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    let mut decoder = FrameDecoder::new(MAX_FRAME);
    for part in bytes.chunks(usize::from(piece) + 1) {
        decoder.push(part);
        while let Ok(Some(received)) = decoder.next_frame() {
            let Ok(message) = received.message::<FromSupervisor>() else { return };
            let mut again = Vec::new();
            frame::encode(&message, &received.body, &mut again).expect("it came as a frame");
            let mut decoder = FrameDecoder::new(MAX_FRAME);
            decoder.push(&again);
            let second = decoder.next_frame().expect("valid").expect("whole");
            assert_eq!(second.message::<FromSupervisor>().expect("valid"), message);
            assert_eq!(second.body, received.body);
        }
        assert!(decoder.pending() <= bytes.len());
    }
});
