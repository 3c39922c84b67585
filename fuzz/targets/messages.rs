//! See `softrnic::fuzz::messages`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    softrnic::fuzz::messages(input);
});
