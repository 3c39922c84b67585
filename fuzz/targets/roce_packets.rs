//! See `softrnic::fuzz::roce_packets`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    softrnic::fuzz::roce_packets(input);
});
