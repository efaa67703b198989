//! What a place may send: any bytes, in any pieces, are frames or an error, and what is understood is
//! understood the same after it was encoded again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stead_fuzz::codec;
use stead_wire::FromSupervisor;

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (mode, piece, bytes) = input;
    codec(mode, piece, bytes, |_: &FromSupervisor, _| {});
});
