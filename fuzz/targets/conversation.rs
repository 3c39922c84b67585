//! See `stride_perf::fuzz::conversation`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    stride_perf::fuzz::conversation(input);
});
