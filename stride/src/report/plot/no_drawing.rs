//! Takes the place of `drawing.rs` in a build without the feature `plot`.

use anyhow::{Error, Result};

use super::Format;
use crate::features::Feature;
use crate::report::Series;

/// Returns `false`, because this build draws no plot.
pub fn has_points(_: &[Series]) -> bool {
    false
}

/// Returns an error, because this build draws no plot.
///
/// # Errors
///
/// Always returns an error for the user, which names the remedy.
pub fn draw(_: &[Series], _: Format) -> Result<Vec<u8>> {
    Err(Error::msg(Feature::Plot.check("plots").err().unwrap_or_default()))
}
