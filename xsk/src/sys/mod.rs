//! System calls and the kernel's structs, with the errno as the error.

pub(crate) mod bpf;
mod mapping;
pub(crate) mod sync;

use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use libc::{c_int, c_uint, c_void, socklen_t};

pub(crate) use self::mapping::Mapping;

/// The errno of a failed call.
pub(crate) type Errno = i32;

/// Descriptors that one `sendto` handles in copy mode (`XDP_MAX_TX_SKB_BUDGET`, Linux 6.17); libc does not have it.
pub(crate) const XDP_MAX_TX_SKB_BUDGET: c_int = 9;
/// Launch time in the TX metadata (Linux 6.15); libc does not have it.
pub(crate) const XDP_TXMD_FLAGS_LAUNCH_TIME: u64 = 1 << 2;
/// libc has these for some C libraries only.
pub(crate) const SO_PREFER_BUSY_POLL: c_int = 69;
pub(crate) const SO_BUSY_POLL_BUDGET: c_int = 70;

/// `struct xdp_desc`: a packet in an RX or TX ring.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Desc {
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) options: u32,
}

const _: () = assert!(size_of::<Desc>() == size_of::<libc::xdp_desc>());

/// The errno of the last call of this thread.
pub(crate) fn errno() -> Errno {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn check(result: c_int) -> Result<c_int, Errno> {
    if result < 0 { Err(errno()) } else { Ok(result) }
}

/// Takes ownership of a descriptor that a call has returned.
fn owned(fd: c_int) -> Result<OwnedFd, Errno> {
    let fd = check(fd)?;
    // SAFETY: the call has just opened the descriptor for its caller alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `socket(domain, kind, 0)`, closed in children that execute another program.
pub(crate) fn socket(domain: c_int, kind: c_int) -> Result<OwnedFd, Errno> {
    // SAFETY: the call takes no pointers.
    owned(unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, 0) })
}

/// `eventfd(0, EFD_CLOEXEC)`.
pub(crate) fn eventfd() -> Result<OwnedFd, Errno> {
    // SAFETY: the call takes no pointers.
    owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
}

/// `setsockopt(fd, level, name, &value, len)`, with the first `len` bytes of the value.
pub(crate) fn set_option<T: Copy>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &T,
    len: usize,
) -> Result<(), Errno> {
    debug_assert!(len <= size_of::<T>());
    let value: *const c_void = std::ptr::from_ref(value).cast();
    // SAFETY: the pointer leads to `len` readable bytes, which the kernel copies.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value, len as socklen_t) }).map(drop)
}

/// `getsockopt(fd, level, name)`; bytes that an older kernel does not write stay zero.
///
/// # Safety
///
/// Zeroes and any bytes that the kernel writes for this option are a valid `T`.
pub(crate) unsafe fn get_option<T: Copy>(fd: BorrowedFd<'_>, level: c_int, name: c_int) -> Result<(T, usize), Errno> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>() as socklen_t;
    // SAFETY: the pointers lead to `len` writable bytes and to the length.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &mut len) })?;
    // SAFETY: the value is zeroed or written by the kernel, which the caller declares valid.
    Ok((unsafe { value.assume_init() }, len as usize))
}

/// `bind(fd, address)`.
pub(crate) fn bind(fd: BorrowedFd<'_>, address: &libc::sockaddr_xdp) -> Result<(), Errno> {
    let len = size_of::<libc::sockaddr_xdp>() as socklen_t;
    // SAFETY: the pointer leads to an address of this length.
    check(unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(address).cast(), len) }).map(drop)
}

/// `sendto(fd, NULL, 0, MSG_DONTWAIT, NULL, 0)`: the kernel transmits what is in the TX ring.
pub(crate) fn kick_tx(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the buffer is empty and there is no address.
    let sent = unsafe { libc::sendto(fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
    check(sent as c_int).map(drop)
}

/// `recvfrom(fd, NULL, 0, MSG_DONTWAIT, NULL, NULL)`: the driver takes frames from the fill ring.
pub(crate) fn kick_rx(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let none = std::ptr::null_mut();
    // SAFETY: the buffer is empty and no address is returned.
    let received =
        unsafe { libc::recvfrom(fd.as_raw_fd(), none, 0, libc::MSG_DONTWAIT, none.cast(), std::ptr::null_mut()) };
    check(received as c_int).map(drop)
}

/// `poll` of one descriptor; returns the events, 0 after the time-out.
pub(crate) fn poll(fd: BorrowedFd<'_>, events: i16, timeout: Duration) -> Result<i16, Errno> {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    // Rounded up, so that a caller with a short deadline does not spin.
    let milliseconds = timeout.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as c_int;
    // SAFETY: the pointer leads to one entry.
    check(unsafe { libc::poll(&mut poll, 1, milliseconds) })?;
    Ok(poll.revents)
}

/// `if_nametoindex(name)`.
pub(crate) fn interface_index(name: &std::ffi::CStr) -> Result<u32, Errno> {
    // SAFETY: the pointer leads to a text that ends with a zero.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(errno()),
        index => Ok(index),
    }
}

/// `if_indextoname(index)`.
pub(crate) fn interface_name(index: u32) -> Result<String, Errno> {
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: the array has the length that the call requires.
    if unsafe { libc::if_indextoname(index as c_uint, name.as_mut_ptr()) }.is_null() {
        return Err(errno());
    }
    Ok(name.iter().take_while(|&&byte| byte != 0).map(|&byte| char::from(byte as u8)).collect())
}

/// `ioctl(fd, request, ifreq)`.
///
/// # Safety
///
/// `argument`, and all that it points to, is valid for the request.
pub(crate) unsafe fn ioctl<T>(fd: RawFd, request: libc::Ioctl, argument: &mut T) -> Result<(), Errno> {
    // SAFETY: the caller ensures that the argument fits the request.
    check(unsafe { libc::ioctl(fd, request, std::ptr::from_mut(argument)) }).map(drop)
}

/// The size of a page.
pub(crate) fn page_size() -> usize {
    // SAFETY: the call takes no pointers.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}
