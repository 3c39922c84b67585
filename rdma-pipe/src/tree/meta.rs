//! Sets modes, times, owners and extended attributes.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use super::attributes::{has_access_list, read_attributes, set_attributes};
use super::beneath::Directory;
use super::keep::{Keep, facts, times};
use super::permissions::{allow, mode_for, writable};
use super::stored::has_facts;
use crate::proto::Entry;

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

/// Sets the metadata of a file again if it has lost it when it was renamed, as on some file systems that are not local.
///
/// # Errors
///
/// See [`set_facts`].
pub fn keep_facts(directory: &Directory, fd: impl AsFd, entry: &Entry, keep: Keep) -> Result<(), Errno> {
    let kept = directory.is_local() || has_facts(directory, entry, keep, || rustix::fs::fstat(&fd)).is_ok();
    if kept { Ok(()) } else { set_facts(directory, fd, entry, keep) }
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
