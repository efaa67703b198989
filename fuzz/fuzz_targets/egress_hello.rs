//! A greeting of TLS: any bytes are refused, want more, or name a host that stands in them. What was decided on a
//! prefix is never taken back by more bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stead_egress::hello::{MAX_HELLO, Step, parse};

fuzz_target!(|input: (usize, &[u8])| {
    let (cut, bytes) = input;
    let whole = parse(bytes);
    match &whole {
        Ok(Step::More) => assert!(bytes.len() < MAX_HELLO),
        Ok(Step::Whole(hello)) => {
            if let Some(name) = &hello.server_name {
                assert!(bytes.windows(name.len()).any(|window| window == name.as_bytes()));
            }
        }
        Err(_) => {}
    }
    let front = parse(&bytes[..cut.min(bytes.len())]);
    assert!(front == Ok(Step::More) || front == whole);
});
