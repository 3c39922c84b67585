//! Examples that must not compile, one for each rule. The first example of each group compiles, and shows the legal
//! use.
//!
//! rustdoc compares the error codes only with a nightly toolchain or `RUSTC_BOOTSTRAP=1`, so `cargo xtask ci tests`
//! sets this variable. `tests/compile-fail/` has the programs whose error message matters.

mod completions;
mod memory;
mod queues;
mod requests;
