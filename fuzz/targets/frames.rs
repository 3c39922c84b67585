//! See `trespass::fuzz::frames`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    trespass::fuzz::frames(input);
});
