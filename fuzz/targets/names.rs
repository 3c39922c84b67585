//! See `softrnic::fuzz::names`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    softrnic::fuzz::names(input);
});
