//! What a host may send: any bytes, in any pieces, are frames or an error, and what is understood is
//! understood the same after it was encoded again. So is the description of a command.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stead_fuzz::codec;
use stead_wire::{CommandSpec, ToSupervisor};

fn description(bytes: &[u8]) {
    let Ok((spec, _)) = postcard::take_from_bytes::<CommandSpec>(bytes) else {
        return;
    };
    let once = postcard::to_allocvec(&spec).expect("it came encoded");
    let (again, rest) = postcard::take_from_bytes::<CommandSpec>(&once).expect("just encoded");
    assert_eq!((&again, rest), (&spec, [].as_slice()));
}

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (mode, piece, bytes) = input;
    codec(mode, piece, bytes, |message: &ToSupervisor, body| {
        if matches!(message, ToSupervisor::Start { .. }) {
            description(body);
        }
    });
    description(bytes);
});
