//! Reads and sets extended attributes, and the access control lists in them.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use rustix::fs::{FileType, Mode, OFlags, XattrFlags};
use rustix::io::Errno;

use super::permissions::allow;
use crate::proto::Entry;

/// Maximum length of the list of attribute names, and of the value of an attribute.
pub(super) const ATTRIBUTE: usize = 64 << 10;

/// The attribute with the access control list of a file.
pub(super) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute with the access control list that new entries of a directory get.
pub(super) const DEFAULT: &[u8] = b"system.posix_acl_default";

/// The attribute with the capabilities of a program.
const CAPABILITY: &[u8] = b"security.capability";

/// The name and the value of an extended attribute.
pub(super) type Attribute = (Vec<u8>, Vec<u8>);

/// Sets the extended attributes of an entry. As with rsync, what the source does not have goes, also what the directory has
/// passed on, and capabilities. Other labels of the system stay.
pub(super) fn set_attributes(fd: impl AsFd, entry: &Entry) -> Result<(), Errno> {
    let held = Held::new(fd.as_fd());
    let (found, mut done) = match read_attributes(&fd) {
        Ok(found) => (found, Ok(())),
        Err(error) => (Vec::new(), Err(error)),
    };
    let wanted = wanted(fd.as_fd(), entry);
    let mut note = |name: &[u8], set| match set {
        // The file system has no such attributes, or they are reserved for root.
        Err(Errno::OPNOTSUPP | Errno::PERM) if !is_users(name) => {}
        set => done = done.and(set),
    };
    for name in surplus(&found, &wanted) {
        let narrowed = if name == ACCESS { narrow(&held) } else { Ok(()) };
        note(name, narrowed.and_then(|()| held.remove(name)));
    }
    for (name, value) in wanted {
        note(name, held.set(name, value));
    }
    done
}

/// The attributes that the copy of an entry gets. Capabilities give a privilege to those that the owner and the group
/// allow to run the file, so they are safe only if the copy has both of the source. See also [`mode_for`](super::permissions::mode_for).
pub(super) fn wanted<'e>(fd: BorrowedFd<'_>, entry: &'e Entry) -> Vec<&'e Attribute> {
    let has_owner = || rustix::fs::fstat(fd).is_ok_and(|found| (found.st_uid, found.st_gid) == entry.owner);
    entry.attributes.iter().filter(|(name, _)| name != CAPABILITY || has_owner()).collect()
}

/// The attributes that a copy loses, because it should not have them.
pub(super) fn surplus<'f>(found: &'f [Attribute], wanted: &[&Attribute]) -> impl Iterator<Item = &'f [u8]> {
    let names = found.iter().map(|(name, _)| name.as_slice());
    names.filter(|name| (is_users(name) || *name == CAPABILITY) && wanted.iter().all(|(other, _)| other != name))
}

/// An open file and, if the descriptor only stands for the file (`O_PATH`), the path that the calls for attributes need
/// instead. Links and special files are not opened, because that may have an effect.
struct Held<'f>(BorrowedFd<'f>, Option<String>);

impl Held<'_> {
    fn new(fd: BorrowedFd<'_>) -> Held<'_> {
        let stands = rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::PATH));
        Held(fd, stands.then(|| format!("/proc/self/fd/{}", fd.as_raw_fd())))
    }

    fn list(&self, names: &mut [u8]) -> Result<usize, Errno> {
        match &self.1 {
            None => rustix::fs::flistxattr(self.0, names),
            // Without /proc, the labels of a link cannot be read. A special file may have an access control list, which
            // must not be lost silently.
            Some(path) => rustix::fs::listxattr(path, names).or_else(|error| match error {
                Errno::NOENT if FileType::from_raw_mode(rustix::fs::fstat(self.0)?.st_mode).is_symlink() => Ok(0),
                error => Err(error),
            }),
        }
    }

    fn get(&self, name: &[u8], value: &mut [u8]) -> Result<usize, Errno> {
        match &self.1 {
            None => rustix::fs::fgetxattr(self.0, name, value),
            Some(path) => rustix::fs::getxattr(path, name, value),
        }
    }

    fn set(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        match &self.1 {
            None => rustix::fs::fsetxattr(self.0, name, value, XattrFlags::empty()),
            Some(path) => rustix::fs::setxattr(path, name, value, XattrFlags::empty()),
        }
    }

    fn remove(&self, name: &[u8]) -> Result<(), Errno> {
        match &self.1 {
            None => rustix::fs::fremovexattr(self.0, name),
            Some(path) => rustix::fs::removexattr(path, name),
        }
    }
}

/// Whether the attributes of an entry contain an access control list.
pub fn has_access_list(entry: &Entry) -> bool {
    entry.attributes.iter().any(|(name, _)| name == ACCESS)
}

/// Prepares a file for the removal of its access control list, which would leave the list's mask to the group.
fn narrow(held: &Held<'_>) -> Result<(), Errno> {
    let (mut list, found) = (vec![0; ATTRIBUTE], rustix::fs::fstat(held.0)?);
    let length = held.get(ACCESS, &mut list)?;
    let mode = found.st_mode & 0o7777;
    match without_list(mode, &list[..length]) {
        narrow if narrow == mode => Ok(()),
        narrow if held.1.is_some() => allow(held.0, narrow),
        narrow => rustix::fs::fchmod(held.0, Mode::from_raw_mode(narrow)),
    }
}

/// The mode that a file has without its access control list. While it has one, the group bits of its mode are the list's
/// mask; without it, the group gets only what the list gives it. After four bytes with the version, each entry of a list
/// has a tag and permissions in two bytes each, and the number of a user or a group in four.
pub(super) fn without_list(mode: u32, list: &[u8]) -> u32 {
    const GROUP: [u8; 2] = 4_u16.to_le_bytes();
    let mut entries = list.get(4..).unwrap_or_default().chunks_exact(8);
    let group = entries.find(|entry| entry.starts_with(&GROUP)).map_or(0, |entry| entry[2] & 0o7);
    mode & (!0o070 | u32::from(group) << 3)
}

/// Whether an extended attribute is data of users or an access control list, and not a label of the system.
fn is_users(name: &[u8]) -> bool {
    name.starts_with(b"user.") || name.starts_with(b"system.posix_acl_")
}

/// Returns the extended attributes of a file. Leaves out labels of the system that this user may not read.
///
/// # Errors
///
/// See flistxattr(2) and fgetxattr(2).
pub fn read_attributes(fd: impl AsFd) -> Result<Vec<Attribute>, Errno> {
    let held = Held::new(fd.as_fd());
    // Most files have none, and need no memory. Those of others do not fit into a byte.
    if held.list(&mut [0_u8; 1]) == Ok(0) {
        return Ok(Vec::new());
    }
    let mut names = vec![0; ATTRIBUTE];
    let length = match held.list(&mut names) {
        // The file system has no attributes.
        Err(Errno::OPNOTSUPP) => 0,
        length => length?,
    };
    names.truncate(length);
    let mut found = Vec::new();
    for name in names.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; ATTRIBUTE];
        match held.get(name, &mut value) {
            Ok(length) => {
                value.truncate(length);
                found.push((name.to_vec(), value));
            }
            // The attribute was removed meanwhile.
            Err(Errno::NODATA) => {}
            Err(error) if is_users(name) => return Err(error),
            Err(_) => {}
        }
    }
    Ok(found)
}
