//! See `softrnic::fuzz::session`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    softrnic::fuzz::session(input);
});
