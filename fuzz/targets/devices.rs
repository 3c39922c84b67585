//! See `softrnic::fuzz::devices`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    softrnic::fuzz::devices(input);
});
