//! See `trespass_rpc::fuzz::rpc_frames`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    trespass_rpc::fuzz::rpc_frames(input);
});
