//! See `softrnic::fuzz::handshake`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    softrnic::fuzz::handshake(input);
});
