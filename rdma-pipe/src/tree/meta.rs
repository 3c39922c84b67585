//! Reads and sets modes, times, owners and extended attributes.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::OnceLock;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_NOW, Uid, XattrFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::beneath::{Directory, allow};
use super::settle::has_facts;
use super::walk::facts;
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
type Attribute = (Vec<u8>, Vec<u8>);

/// Metadata that a copy keeps in addition to contents and time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keep {
    /// Whether to keep all bits of the mode; otherwise the umask is applied to the permissions.
    pub mode: bool,
    /// User and group.
    pub owner: bool,
    /// Extended attributes, including access control lists.
    pub attributes: bool,
    /// Hard links.
    pub links: bool,
    /// FIFOs, sockets and device nodes; otherwise they are skipped.
    pub specials: bool,
}

impl Keep {
    /// All metadata of an entry.
    pub const ALL: Keep = Keep { mode: true, owner: true, attributes: true, links: false, specials: false };

    /// Whether metadata is kept, so that it is an error if it cannot be set.
    fn has_metadata(&self) -> bool {
        self.mode || self.owner || self.attributes
    }

    /// Whether the metadata of an existing file differs from the source's. See also
    /// [`attributes_differ`](Self::attributes_differ).
    pub fn differs(&self, found: &Stat, entry: &Entry) -> bool {
        (found.st_mtime, found.st_mtime_nsec as u32) != entry.modified
            || (self.mode && found.st_mode & 0o7777 != mode_for(found, entry))
            || (self.owner && (found.st_uid, found.st_gid) != entry.owner && may_have(entry.owner))
    }

    /// Whether an open entry of the source has the metadata that was listed.
    pub fn has(&self, fd: impl AsFd, found: &Stat, entry: &Entry) -> bool {
        // What cannot be read has changed.
        let has_attributes = || {
            read_attributes(fd).is_ok_and(|found| {
                found.len() == entry.attributes.len() && found.iter().all(|one| entry.attributes.contains(one))
            })
        };
        (found.st_mode & 0o7777) as u16 == entry.mode
            && (!self.owner || (found.st_uid, found.st_gid) == entry.owner)
            && (!self.attributes || has_attributes())
    }

    /// Whether the extended attributes of an existing file differ from the source's.
    pub fn attributes_differ(&self, fd: impl AsFd, entry: &Entry) -> bool {
        let fd = fd.as_fd();
        let differs = |found: Vec<Attribute>| {
            let wanted = wanted(fd, entry);
            wanted.iter().any(|wanted| !found.contains(wanted)) || surplus(&found, &wanted).next().is_some()
        };
        // What cannot be read is set again, which reports the error.
        self.attributes && read_attributes(fd).map_or(true, differs)
    }
}

/// Sets the metadata of an entry on the written file, which is in this directory or is the directory itself. If something
/// cannot be set, the rest is set nevertheless.
///
/// # Errors
///
/// The first error of fchown(2), fchmod(2), fsetxattr(2) and futimens(2); `EOVERFLOW` if the file system cannot store the
/// time, and `EOPNOTSUPP` if it has ignored the mode or the owner.
pub fn set_facts(directory: &Directory, fd: impl AsFd, entry: &Entry, keep: Keep) -> Result<(), Errno> {
    let fd = fd.as_fd();
    let mut done = Ok(());
    if keep.owner {
        let (user, group) = (Uid::from_raw(entry.owner.0), Gid::from_raw(entry.owner.1));
        match rustix::fs::fchown(fd, Some(user), Some(group)) {
            // Only root may change the owner of a file, so that others do not ask for it with -a.
            Err(Errno::PERM) if !rustix::process::geteuid().is_root() => {}
            // For example, a user namespace has no such user.
            set => done = set,
        }
    }
    // Where they are equal, a read-only file need not become writable.
    if keep.attributes_differ(fd, entry) {
        let is_writable = writable(fd).unwrap_or_else(|error| {
            done = done.and(Err(error));
            true
        });
        done = done.and(set_attributes(fd, entry));
        // A list also sets the permissions of the owner.
        if !is_writable && !keep.mode && !has_access_list(entry) {
            let mode = rustix::fs::fstat(fd)?.st_mode & 0o7577;
            done = done.and(rustix::fs::fchmod(fd, Mode::from_raw_mode(mode)));
        }
    }
    if keep.mode {
        let set = rustix::fs::fstat(fd)
            .and_then(|found| rustix::fs::fchmod(fd, Mode::from_raw_mode(mode_for(&found, entry))));
        done = done.and(set);
    }
    let set = rustix::fs::futimens(fd, &times(entry.modified));
    done.and(set.and_then(|()| has_facts(directory, entry, keep, || rustix::fs::fstat(fd))))
}

/// The mode that a file gets. The set-user-ID bit is safe only if the copy has the user of the source, and the
/// set-group-ID bit only if it has the group. In a directory, they give no privilege.
pub(super) fn mode_for(found: &Stat, entry: &Entry) -> u32 {
    if FileType::from_raw_mode(found.st_mode).is_dir() {
        return u32::from(entry.mode) & 0o7777;
    }
    let user = if found.st_uid == entry.owner.0 { 0o4000 } else { 0 };
    let group = if found.st_gid == entry.owner.1 { 0o2000 } else { 0 };
    u32::from(entry.mode) & (0o1777 | user | group)
}

/// Whether this user may give a file to this user and group.
fn may_have((user, group): (u32, u32)) -> bool {
    use rustix::{process, thread};
    let is_own = || {
        process::getegid().as_raw() == group
            || process::getgroups().is_ok_and(|groups| groups.contains(&Gid::from_raw(group)))
    };
    process::geteuid().is_root()
        || (process::geteuid().as_raw() == user && is_own())
        || thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(thread::CapabilitySet::CHOWN))
}

/// Sets the extended attributes of an entry. As with rsync, what the source does not have goes, also what the directory has
/// passed on, and capabilities. Other labels of the system stay.
fn set_attributes(fd: impl AsFd, entry: &Entry) -> Result<(), Errno> {
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
/// allow to run the file, so they are safe only if the copy has both of the source. See also [`mode_for`].
fn wanted<'e>(fd: BorrowedFd<'_>, entry: &'e Entry) -> Vec<&'e Attribute> {
    let has_owner = || rustix::fs::fstat(fd).is_ok_and(|found| (found.st_uid, found.st_gid) == entry.owner);
    entry.attributes.iter().filter(|(name, _)| name != CAPABILITY || has_owner()).collect()
}

/// The attributes that a copy loses, because it should not have them.
fn surplus<'f>(found: &'f [Attribute], wanted: &[&Attribute]) -> impl Iterator<Item = &'f [u8]> {
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

/// Lets the owner of a file write it, without which the owner cannot set its attributes; rsync does the same. Returns
/// false if the owner could not.
fn writable(fd: impl AsFd) -> Result<bool, Errno> {
    let fd = fd.as_fd();
    let found = rustix::fs::fstat(fd)?;
    if found.st_mode & 0o200 != 0 || !needs_permissions(&found) {
        return Ok(true);
    }
    rustix::fs::fchmod(fd, Mode::from_raw_mode(found.st_mode & 0o7777 | 0o200)).map(|()| false)
}

/// Whether this user owns an entry, and is limited by its permissions. Those of root are others in some containers.
pub(super) fn needs_permissions(found: &Stat) -> bool {
    static OVERRIDES: OnceLock<bool> = OnceLock::new();
    let overrides = || {
        let all = rustix::thread::capabilities(None);
        all.is_ok_and(|all| all.effective.contains(rustix::thread::CapabilitySet::DAC_OVERRIDE))
    };
    found.st_uid == rustix::process::geteuid().as_raw() && !OVERRIDES.get_or_init(overrides)
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

/// The times to set. The time of access is set too, because many file systems of FUSE ignore a call that omits it.
pub(super) fn times((seconds, nanos): (i64, u32)) -> Timestamps {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let modified = Timespec { tv_sec: seconds, tv_nsec: nanos.min(999_999_999).into() };
    Timestamps { last_access: now, last_modification: modified }
}

/// Sets the owner, the time and the attributes of a symbolic link, where they differ. Its mode has no meaning.
///
/// # Errors
///
/// See fchownat(2), utimensat(2) and lsetxattr(2).
pub(super) fn set_link_facts(directory: &Directory, name: &[u8], entry: &Entry, keep: Keep) -> Result<(), Errno> {
    set_own_facts(directory, name, FileType::Symlink, entry, keep)?.1
}

/// Sets the owner, the time and the attributes of an entry that is not opened. Returns a descriptor that stands for it,
/// and whether they could be set.
///
/// # Errors
///
/// See [`set_link_facts`]; `EWOULDBLOCK` if another process has replaced the entry by one of another type.
fn set_own_facts(
    directory: &Directory,
    name: &[u8],
    file_type: FileType,
    entry: &Entry,
    keep: Keep,
) -> Result<(OwnedFd, Result<(), Errno>), Errno> {
    // Another process could give the name to another entry, so that this one would get the owner.
    let fd = look(directory, name)?;
    let found = rustix::fs::fstat(&fd)?;
    if FileType::from_raw_mode(found.st_mode) != file_type {
        return Err(Errno::WOULDBLOCK);
    }
    let mut done = Ok(());
    let differs = (keep.owner && (found.st_uid, found.st_gid) != entry.owner) || facts(&found).1 != entry.modified;
    let has_facts_of_links = !differs || !file_type.is_symlink() || directory.has_link_facts(name);
    if keep.owner && (found.st_uid, found.st_gid) != entry.owner {
        let (user, group) = (Uid::from_raw(entry.owner.0), Gid::from_raw(entry.owner.1));
        let set = || rustix::fs::chownat(&fd, "", Some(user), Some(group), AtFlags::EMPTY_PATH);
        match if has_facts_of_links { set() } else { Err(Errno::OPNOTSUPP) } {
            // See `set_facts`.
            Err(Errno::PERM) if !rustix::process::geteuid().is_root() => {}
            set => done = set,
        }
    }
    if facts(&found).1 != entry.modified && has_facts_of_links {
        let set = match rustix::fs::utimensat(&fd, "", &times(entry.modified), AtFlags::EMPTY_PATH) {
            // Linux before 5.8 sets these times by the name only.
            Err(Errno::INVAL) => {
                rustix::fs::utimensat(directory, name, &times(entry.modified), AtFlags::SYMLINK_NOFOLLOW)
            }
            set => set,
        };
        match set {
            // The file system has no times of links, or the link belongs to another user, as with directories.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(Errno::PERM) if !keep.has_metadata() && found.st_uid != rustix::process::geteuid().as_raw() => {}
            set => {
                // The mode of a special file is set later.
                let is_set = || has_facts(directory, entry, Keep { mode: false, ..keep }, || rustix::fs::fstat(&fd));
                done = done.and(set.and_then(|()| is_set()));
            }
        }
    }
    if keep.attributes_differ(&fd, entry) {
        done = done.and(set_attributes(&fd, entry));
    }
    Ok((fd, done))
}

/// Opens an entry without reading it. If it is a link, opens the link itself.
fn look(directory: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(directory, OsStr::from_bytes(name), flags, Mode::empty())
}

/// Returns an existing entry of the same type and contents as this one, with its own metadata.
///
/// # Errors
///
/// See [`read_attributes`].
pub fn with_own_facts(fd: impl AsFd, entry: &Entry) -> Result<Entry, Errno> {
    let found = rustix::fs::fstat(&fd)?;
    let (mode, owner, modified) = ((found.st_mode & 0o7777) as u16, (found.st_uid, found.st_gid), facts(&found).1);
    let (name, kind) = (entry.name.clone(), entry.kind.clone());
    Ok(Entry { name, kind, mode, owner, modified, attributes: read_attributes(fd)? })
}

/// Opens an existing link or special file, if to set its metadata would change its other names (hard links) too, and
/// returns it as [`with_own_facts`] does.
pub(super) fn shared(directory: impl AsFd, entry: &Entry, keep: Keep) -> Result<Option<Entry>, Errno> {
    let fd = look(directory, &entry.name)?;
    let found = rustix::fs::fstat(&fd)?;
    // The mode of a link has no meaning.
    let mode = keep.mode && !FileType::from_raw_mode(found.st_mode).is_symlink();
    let differs = || Keep { mode, ..keep }.differs(&found, entry) || keep.attributes_differ(&fd, entry);
    if found.st_nlink > 1 && differs() { with_own_facts(&fd, entry).map(Some) } else { Ok(None) }
}

/// Sets the metadata of a special file, where it differs. The file is not opened, because that may have an effect.
///
/// # Errors
///
/// See [`set_link_facts`] and chmod(2).
pub(super) fn set_special_facts(
    directory: &Directory,
    name: &[u8],
    file_type: FileType,
    entry: &Entry,
    keep: Keep,
) -> Result<(), Errno> {
    // The owner comes first, because chown(2) removes bits of the mode.
    let (fd, done) = set_own_facts(directory, name, file_type, entry, keep)?;
    let found = rustix::fs::fstat(&fd)?;
    let mode = mode_for(&found, entry);
    let set = if keep.mode && found.st_mode & 0o7777 != mode { allow(&fd, mode) } else { Ok(()) };
    done.and(set)
}

/// Sets the metadata of a directory whose entries are complete, where it differs. The time of a directory that belongs to
/// another user stays as it is, unless the metadata is kept.
///
/// # Errors
///
/// See [`set_facts`].
pub fn set_directory_facts(directory: &Directory, entry: &Entry, keep: Keep) -> Result<(), Errno> {
    let fd = directory.as_fd();
    let found = rustix::fs::fstat(fd)?;
    if !keep.differs(&found, entry) && !keep.attributes_differ(fd, entry) {
        return Ok(());
    }
    match set_facts(directory, fd, entry, keep) {
        // The latter if this user may not list it, so that the descriptor only stands for it.
        Err(Errno::PERM | Errno::BADF)
            if !keep.has_metadata() && found.st_uid != rustix::process::geteuid().as_raw() =>
        {
            Ok(())
        }
        set => set,
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::EntryKind;

    #[test]
    fn attributes_of_users_are_not_lost_silently() {
        // procfs has no such attributes.
        let open = || std::fs::File::options().write(true).open("/proc/self/comm").unwrap();
        let keep = Keep { attributes: true, ..Keep::default() };
        let set = |name: &[u8]| {
            let kind = EntryKind::Link(Vec::new());
            let attributes = vec![(name.to_vec(), b"value".to_vec())];
            let entry = Entry { name: Vec::new(), kind, mode: 0, owner: (0, 0), modified: (0, 0), attributes };
            set_facts(&Directory::open("/proc/self".as_ref()).unwrap(), open(), &entry, keep)
        };
        assert_eq!((set(b"user.k"), set(b"system.posix_acl_access")), (Err(Errno::OPNOTSUPP), Err(Errno::OPNOTSUPP)));
        assert_ne!(set(b"security.label"), Err(Errno::OPNOTSUPP));
    }
}
