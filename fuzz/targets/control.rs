//! See `stride_perf::fuzz::control`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    stride_perf::fuzz::control(input);
});
