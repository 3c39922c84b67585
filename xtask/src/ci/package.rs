//! The step `package`: each public crate builds from what would be uploaded, its siblings being those that would be uploaded
//! beside it.

use std::path::Path;

use anyhow::Result;

use super::cargo;
use super::public;

/// Packs and builds them together, which makes cargo take each from the others' packages.
pub(super) fn check(root: &Path) -> Result<()> {
    let crates = public::crates(root, &[])?;
    let mut words = vec!["package", "--allow-dirty", "--quiet"];
    words.extend(public::arguments(&crates));
    cargo(&words, &[])
}
