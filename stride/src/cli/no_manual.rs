//! Takes the place of `manual.rs` in a build without the feature `manual`. The parser rejects the commands before it
//! calls these functions.

use std::io::{self, ErrorKind, Write};

use clap::Command;

/// The name of a shell.
pub type Shell = String;

/// Returns no command, because there are no manual pages.
pub(super) fn command(_: &[String]) -> Option<Command> {
    None
}

/// Returns an error, because there are no manual pages.
///
/// # Errors
///
/// Always returns `Unsupported`.
pub fn man(_: &[String], _: &mut dyn Write) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

/// Returns an error, because there are no completion scripts.
///
/// # Errors
///
/// Always returns `Unsupported`.
pub fn completions(_: Shell, _: &mut dyn Write) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}
