//! The directories in which the owner has more permissions while a copy runs.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::copy::target::Target;
use crate::error::Error;
use crate::tree::Directory;

/// The lists of the copies that this process receives.
static RUNNING: Mutex<Vec<Arc<List>>> = Mutex::new(Vec::new());

/// The directories of one copy. It outlives a connection.
#[derive(Debug)]
pub(super) struct Opened(Arc<List>);

#[derive(Debug)]
struct List {
    /// The destination, if it is a directory.
    root: Option<Arc<Directory>>,
    /// The permissions that the directories had, by their paths.
    permissions: Mutex<HashMap<Vec<u8>, u16>>,
}

impl Opened {
    pub(super) fn new(target: &Target) -> Self {
        let root = match target {
            Target::Inside(inside) => Some(Arc::clone(&inside.root)),
            Target::Device(..) => None,
        };
        let list = Arc::new(List { root, permissions: Mutex::default() });
        lock(&RUNNING).push(Arc::clone(&list));
        Self(list)
    }

    /// Records the permissions that a directory had, if they were others. Returns them, also if an earlier connection has
    /// recorded them.
    pub(super) fn note(&self, path: &[u8], permissions: Option<u16>) -> Option<u16> {
        let mut all = lock(&self.0.permissions);
        let permissions = permissions.or_else(|| all.get(path).copied());
        all.extend(permissions.map(|permissions| (path.to_vec(), permissions)));
        permissions
    }

    /// Gives the directories their permissions back, because the copy has failed.
    pub(super) fn give_back(&self) {
        self.0.give_back();
    }

    /// The copy is complete, and has set the permissions.
    pub(super) fn forget(&self) {
        lock(&self.0.permissions).clear();
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        lock(&RUNNING).retain(|list| !Arc::ptr_eq(list, &self.0));
    }
}

impl List {
    fn give_back(&self) {
        let (Some(root), permissions) = (&self.root, lock(&self.permissions)) else { return };
        let mut paths: Vec<_> = permissions.iter().collect();
        // The deepest come first, because the others may then be closed to their owner.
        paths.sort_unstable_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        for (path, mode) in paths {
            let directory = root.of_tree(if path.is_empty() { b"." } else { path });
            let set = directory.and_then(|directory| directory.give_back(*mode));
            if let Err(cause) = set {
                let path = root.path().join(OsStr::from_bytes(path));
                log::warn!("{}", Error::file("set the permissions of", &path, &cause.into()));
            }
        }
    }
}

/// Gives the directories of all copies that this process receives their permissions back, because the process ends.
pub fn give_back_permissions() {
    lock(&RUNNING).iter().for_each(|list| list.give_back());
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
