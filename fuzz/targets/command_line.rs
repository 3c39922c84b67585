//! See `stride_perf::fuzz::command_line`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    stride_perf::fuzz::command_line(input);
});
