//! See `trespass::fuzz::handshake`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    trespass::fuzz::handshake(input);
});
