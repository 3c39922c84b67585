//! What the tests share.

pub mod headers;
pub mod process;
pub mod requirements;

/// The code of the README is compiled.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
