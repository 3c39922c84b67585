//! See `softrnic::fuzz::connections`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    softrnic::fuzz::connections(input);
});
