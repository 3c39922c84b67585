//! Plots results over the message size.

#[cfg(feature = "plot")]
mod drawing;
#[cfg(not(feature = "plot"))]
mod no_drawing;

use std::path::Path;

use anyhow::{Result, bail};

pub use self::drawing::{draw, has_points};
#[cfg(not(feature = "plot"))]
use self::no_drawing as drawing;

/// The format of a plot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Vector graphics, for which the viewer provides the fonts.
    Svg,
    /// A bitmap.
    Png,
}

impl Format {
    /// Selects the format by the extension of a file name.
    ///
    /// # Errors
    ///
    /// Returns an error if the extension is neither `.svg` nor `.png`.
    pub fn of(path: &Path) -> Result<Self> {
        match path.extension().and_then(|end| end.to_str()).map(str::to_ascii_lowercase).as_deref() {
            Some("svg") => Ok(Self::Svg),
            Some("png") => Ok(Self::Png),
            _ => bail!("{}: unsupported plot format; name a file that ends in .svg or .png", path.display()),
        }
    }
}
