//! `struct ibv_xrcd`. An XRC domain can be shared only within the process.

use std::collections::HashMap;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, Weak};

use rdma_mummy_sys::{ibv_context, ibv_xrcd, ibv_xrcd_init_attr, ibv_xrcd_init_attr_mask};

use super::context::Context;
use super::failure::{code, null};
use super::object::Object;
use crate::mem::domain::Domain;
use crate::sys::errno::Errno;
use crate::sys::fork::PerProcess;
use crate::sys::unpoisoned;
use crate::sys::usage::{Usage, Use};

/// An XRC domain.
#[repr(C)]
pub(crate) struct XrcDomain {
    pub(crate) c: ibv_xrcd,
    pub(crate) domain: Arc<Domain>,
    /// Counts the dependents of this C object; other objects may share its `domain`.
    pub(crate) usage: Usage,
    pub(crate) uses: Vec<Use>,
}

// SAFETY: an `XrcDomain` starts with an `ibv_xrcd`.
unsafe impl Object for XrcDomain {
    type C = ibv_xrcd;
}

/// The key of a domain: the address of its device, and the file system and the inode of its file.
type Key = (usize, libc::dev_t, libc::ino_t);
type Named = HashMap<Key, Weak<Domain>>;

/// Weak references to the domains that files identify.
static NAMED: PerProcess<Mutex<Option<Named>>> = PerProcess::new(Mutex::new(None), Box::default);

/// `ibv_open_xrcd(context, xrcd_init_attr)`: descriptors with the same inode identify the same domain, but only within
/// this process.
///
/// # Safety
///
/// As in C: the context is open, and the attributes are readable.
pub(crate) unsafe extern "C" fn open_xrcd(context: *mut ibv_context, init: *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd {
    // SAFETY: guaranteed by the caller.
    let (init, device, open) = unsafe { (*init, (*context).device.addr(), Context::of(context)) };
    match domain(device, &init) {
        Ok(domain) => {
            let uses = vec![open.usage.begin()];
            XrcDomain { c: ibv_xrcd { context }, domain, usage: Usage::default(), uses }.into_c()
        }
        Err(errno) => null(errno),
    }
}

/// Finds or creates the requested domain.
fn domain(device: usize, init: &ibv_xrcd_init_attr) -> Result<Arc<Domain>, Errno> {
    const ALL: u32 =
        ibv_xrcd_init_attr_mask::IBV_XRCD_INIT_ATTR_FD.0 | ibv_xrcd_init_attr_mask::IBV_XRCD_INIT_ATTR_OFLAGS.0;
    if init.comp_mask != ALL || init.oflags & !(libc::O_CREAT | libc::O_EXCL) != 0 {
        return Err(Errno::INVALID);
    }
    if init.fd == -1 {
        return Ok(Arc::new(Domain::new()));
    }
    let (file_system, inode) = file(init.fd)?;
    let mut named = unpoisoned(NAMED.get().lock());
    let named = named.get_or_insert_default();
    named.retain(|_, domain| domain.strong_count() != 0);
    let key = (device, file_system, inode);
    match named.get(&key).and_then(Weak::upgrade) {
        Some(_) if init.oflags & libc::O_EXCL != 0 => Err(Errno::INVALID),
        Some(domain) => Ok(domain),
        None if init.oflags & libc::O_CREAT == 0 => Err(Errno::AGAIN),
        None => {
            let domain = Arc::new(Domain::new());
            named.insert(key, Arc::downgrade(&domain));
            Ok(domain)
        }
    }
}

/// Returns the file system and the inode of the file to which a descriptor refers.
fn file(fd: c_int) -> Result<(libc::dev_t, libc::ino_t), Errno> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the status is writable, and `fstat` accepts any number.
    if unsafe { libc::fstat(fd, status.as_mut_ptr()) } != 0 {
        return Err(Errno(libc::EBADF));
    }
    // SAFETY: the call succeeded, so `status` was written.
    let status = unsafe { status.assume_init() };
    Ok((status.st_dev, status.st_ino))
}

/// `ibv_close_xrcd(xrcd)`: `EBUSY` while SRQs or QPs use it.
///
/// # Safety
///
/// As in C: the domain is alive, and no longer used if this succeeds.
pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    // SAFETY: guaranteed by the caller.
    if unsafe { XrcDomain::of(xrcd) }.usage.is_used() {
        return code(Errno::BUSY);
    }
    // SAFETY: guaranteed by the caller.
    drop(unsafe { XrcDomain::from_c(xrcd) });
    0
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use super::*;

    fn request(fd: c_int, oflags: c_int) -> ibv_xrcd_init_attr {
        let mask =
            ibv_xrcd_init_attr_mask::IBV_XRCD_INIT_ATTR_FD.0 | ibv_xrcd_init_attr_mask::IBV_XRCD_INIT_ATTR_OFLAGS.0;
        ibv_xrcd_init_attr { comp_mask: mask, fd, oflags }
    }

    /// Opens an unnamed file, and duplicates its descriptor.
    fn unnamed() -> (File, File) {
        // SAFETY: the name is a C string; the descriptor is new, and the `File` alone owns it.
        let file = unsafe {
            let fd = libc::memfd_create(c"domain".as_ptr(), libc::MFD_CLOEXEC);
            assert!(fd >= 0);
            <File as std::os::fd::FromRawFd>::from_raw_fd(fd)
        };
        let other = file.try_clone().unwrap();
        (file, other)
    }

    #[test]
    fn domains_without_a_file_are_distinct() {
        let one = domain(1, &request(-1, libc::O_CREAT)).unwrap();
        let other = domain(1, &request(-1, libc::O_CREAT)).unwrap();
        assert!(!one.is(&other));
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn file_identifies_a_domain_of_a_device() {
        let (file, same) = unnamed();
        let (fd, same) = (file.as_raw_fd(), same.as_raw_fd());
        assert_eq!(domain(1, &request(fd, 0)).err(), Some(Errno::AGAIN));
        let one = domain(1, &request(fd, libc::O_CREAT | libc::O_EXCL)).unwrap();
        assert!(domain(1, &request(same, 0)).unwrap().is(&one));
        assert!(domain(1, &request(same, libc::O_CREAT)).unwrap().is(&one));
        assert_eq!(domain(1, &request(fd, libc::O_CREAT | libc::O_EXCL)).err(), Some(Errno::INVALID));
        assert_eq!(domain(2, &request(fd, 0)).err(), Some(Errno::AGAIN));
        let (other, _same) = unnamed();
        assert_eq!(domain(1, &request(other.as_raw_fd(), 0)).err(), Some(Errno::AGAIN));
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn last_close_ends_the_domain() {
        let (file, _same) = unnamed();
        let fd = file.as_raw_fd();
        let one = domain(1, &request(fd, libc::O_CREAT)).unwrap();
        let two = domain(1, &request(fd, 0)).unwrap();
        drop(one);
        assert!(domain(1, &request(fd, 0)).is_ok());
        drop(two);
        assert_eq!(domain(1, &request(fd, 0)).err(), Some(Errno::AGAIN));
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn invalid_descriptor_is_refused() {
        assert_eq!(domain(1, &request(c_int::MAX, libc::O_CREAT)).err(), Some(Errno(libc::EBADF)));
    }

    #[test]
    fn missing_and_unknown_attributes_are_refused() {
        let mut init = request(-1, libc::O_CREAT);
        init.comp_mask = ibv_xrcd_init_attr_mask::IBV_XRCD_INIT_ATTR_FD.0;
        assert_eq!(domain(1, &init).err(), Some(Errno::INVALID));
        init.comp_mask = 7;
        assert_eq!(domain(1, &init).err(), Some(Errno::INVALID));
        assert_eq!(domain(1, &request(-1, libc::O_CREAT | libc::O_APPEND)).err(), Some(Errno::INVALID));
    }
}
