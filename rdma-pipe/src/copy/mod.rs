//! Copies files and trees over a connection. The threads of both sides drive the state machines of [`crate::proto`].

mod chain;
mod limiter;
mod options;
mod progress;
mod read;
mod sink;
mod source;
mod target;
mod writer;

pub use options::CopyOptions;
pub use progress::Progress;
pub use sink::receive;
pub use source::send;
pub use target::{Target, below};

use std::collections::HashSet;
use std::path::PathBuf;

use crate::error::{Error, Kind, Result, escape};
use crate::proto::Totals;
use crate::tree::{Origin, base_name, names};

/// Rejects sources if two of their entries would become the same entry of the destination.
///
/// # Errors
///
/// Two sources have the same name, or contain entries with the same name.
pub fn check_names(origin: &Origin, paths: &[PathBuf], options: &CopyOptions) -> Result<()> {
    if paths.len() < 2 {
        return Ok(());
    }
    let mut known = HashSet::new();
    for path in paths {
        let names = match options.sync && path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            // The copy reports a source that cannot be read.
            true => names(origin, path).map(|(_, names)| names).unwrap_or_default(),
            false => base_name(path).into_iter().collect(),
        };
        for name in names.into_iter().filter(|name| options.filter.allows(name, false)) {
            if let Some(name) = known.replace(name) {
                let name = escape(String::from_utf8_lossy(&name).as_ref().as_ref());
                let text = format!("several sources have the name {name}; copy them to different directories");
                return Err(Error::new(Kind::Usage, text));
            }
        }
    }
    Ok(())
}

/// The result of a copy that was not aborted.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Totals of the copy.
    pub totals: Totals,
    /// Bytes that this side sent or received.
    pub carried: u64,
    /// Error texts of the entries that failed.
    pub failures: Vec<Error>,
}

impl Outcome {
    /// The exit status: 0, 24 if sources vanished or changed and nothing else failed, otherwise 23.
    pub fn status(&self) -> u8 {
        match self.failures.iter().map(Error::kind).max_by_key(|kind| *kind != Kind::Vanished) {
            None => 0,
            Some(Kind::Vanished) => 24,
            Some(_) => 23,
        }
    }
}
