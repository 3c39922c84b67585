//! What both sides of a copy must agree on.

use serde::{Deserialize, Serialize};

use crate::tree::{Filter, Keep};

/// Options of a copy.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CopyOptions {
    /// Directories are copied.
    pub recursive: bool,
    /// Files that are there already, with size and time of the source, are skipped.
    pub sync: bool,
    /// Their contents are compared instead of their time.
    pub checksum: bool,
    /// What the source does not have is removed from copied directories.
    pub delete: bool,
    /// Nothing is written.
    pub dry_run: bool,
    /// What is kept besides contents and time.
    pub keep: Keep,
    /// What is left out.
    pub filter: Filter,
    /// Paths below the source that are copied alone.
    pub files_from: Option<Vec<Vec<u8>>>,
    /// Bytes a second at most; 0 is no limit.
    pub limit: u64,
    /// One syncfs(2) at the end.
    pub fsync: bool,
}

impl CopyOptions {
    /// Whether the receiver is asked for each file.
    pub fn asks(&self) -> bool {
        self.sync || self.dry_run
    }
}
