//! The options of a copy. Both sides must use the same ones.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Kind, Result};
use crate::link::Patience;
use crate::tree::{Ancestry, Filter, GivesWay, Keep, is_contents};

/// The options of a copy.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CopyOptions {
    /// Copy directories.
    pub recursive: bool,
    /// Skip files that already have the size and time of the source.
    pub sync: bool,
    /// Compare contents instead of times.
    pub checksum: bool,
    /// Remove entries that the source does not have from copied directories.
    pub delete: bool,
    /// Only report what would be copied, and write nothing.
    pub dry_run: bool,
    /// Metadata to keep in addition to the time.
    pub keep: Keep,
    /// The filter that selects the entries to copy.
    pub filter: Filter,
    /// Copy only these paths below the source.
    pub files_from: Option<Vec<Vec<u8>>>,
    /// Maximum bytes per second; 0 means no limit.
    pub limit: u64,
    /// Call syncfs(2) at the end, once for each file system that was written.
    pub fsync: bool,
    /// Whether the copy has several destinations, each of which forwards the data to the next. If a host of this chain is
    /// silent, its neighbours wait for others.
    pub chained: bool,
    /// Whether this process connects to no other host of a chain, because only the files of this host were offered.
    #[serde(skip)]
    pub alone: bool,
    /// Whether the connection continues a copy that an earlier connection has begun.
    #[serde(skip)]
    pub again: bool,
    /// The destinations, as far as they are known to the source.
    #[serde(skip)]
    pub into: Vec<Ancestry>,
}

impl CopyOptions {
    /// Checks the listed paths, which may come from another host.
    ///
    /// # Errors
    ///
    /// A path contains `..`, and so leads out of the source.
    pub fn check(&self) -> Result<()> {
        let leads_out = |path: &Vec<u8>| path.split(|&byte| byte == b'/').any(|part| part == b"..");
        match self.files_from.iter().flatten().any(leads_out) {
            true => Err(Error::new(
                Kind::Usage,
                "a path of --files-from contains .., which leads out of the source; remove it",
            )),
            false => Ok(()),
        }
    }

    /// Whether an operand that is a link stands for what it names, as with cp: not if directories are copied.
    pub fn follows(&self) -> bool {
        !self.recursive
    }

    /// Whether the operand stands for the entries of a directory: it is `.` or `..`, or ends in one of them, or, with
    /// `--sync`, in a slash. All paths of `--files-from` are such entries.
    pub fn is_contents(&self, operand: &[u8]) -> bool {
        self.files_from.is_some() || is_contents(operand, self.sync)
    }

    /// For how long to connect to a host that already listens. A host of a chain whose neighbour is silent first waits for
    /// that neighbour, and may begin to do so later than others.
    pub fn patience(&self, timeout: Duration) -> Patience {
        let most = Duration::from_secs(10);
        Patience::Listening(if self.chained { most * 3 + timeout * 2 } else { most })
    }

    /// What gives way to a new entry of another type. With patterns, a directory with entries does not, because it may
    /// contain what they protect.
    pub fn gives_way(&self) -> GivesWay {
        match (self.sync, self.delete && self.filter.is_empty()) {
            (false, _) => GivesWay::Nothing,
            (true, false) => GivesWay::Entry,
            (true, true) => GivesWay::Tree,
        }
    }

    /// Whether the sender asks the receiver, for each file, how much of it the receiver already has.
    pub fn asks(&self) -> bool {
        self.sync || self.dry_run || self.again
    }
}
