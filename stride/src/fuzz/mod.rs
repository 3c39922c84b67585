//! What users and other hosts send, as functions of bytes: for the fuzz targets (`fuzz/` of the repository), which call them with
//! bytes of their choice, and for the test that calls them with those that are kept (`fuzz/corpus`).
//!
//! Each tells whether what came was believed to its end. None of them panics.

mod conversation;
mod results;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

pub use self::conversation::conversation;
pub use self::results::results;

/// A command line, a word on each line.
pub fn command_line(text: &[u8]) -> bool {
    let words = text.split(|&byte| byte == b'\n').map(|word| OsString::from_vec(word.to_vec()));
    match crate::cli::parse(std::iter::once(OsString::from("stride-perf")).chain(words)) {
        Ok(_) => true,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    }
}
