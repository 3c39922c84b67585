//! See `softrnic::fuzz::greeting`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    softrnic::fuzz::greeting(input);
});
