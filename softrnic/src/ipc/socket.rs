//! Sockets between processes: names without files, and what goes over them: a greeting, and then wake-ups.

use std::io::{IoSlice, IoSliceMut};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use super::codec::Garbage;
use crate::sys::descriptor::Descriptor;

/// What a greeting says: the version of all that goes through the rings, and how large these are.
const GREETING: usize = 16;

/// A socket that does not wait, and that no program gets which this process starts.
pub(super) fn new() -> Result<Descriptor, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Descriptor::open(|| rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None))
}

/// The address of a name; each ends with its process.
pub(super) fn address(name: &str) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new_abstract_name(name.as_bytes())
}

/// The user at the other end, as it was when it connected or listened. In a namespace of other users it is nobody.
///
/// Not by `rustix`, which has a process number there that cannot be zero, as that of a process in another namespace of these is.
fn user(socket: BorrowedFd<'_>) -> Option<u32> {
    let mut who = MaybeUninit::<libc::ucred>::uninit();
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `who` is room for as many bytes as `length` says.
    let result = unsafe {
        let start = who.as_mut_ptr().cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, start, &raw mut length)
    };
    if result != 0 || length as usize != size_of::<libc::ucred>() {
        return None;
    }
    // SAFETY: the kernel has filled in all of it.
    Some(unsafe { who.assume_init() }.uid)
}

/// Whether the other end is of this process's user.
pub(crate) fn is_ours(socket: BorrowedFd<'_>) -> bool {
    user(socket) == Some(rustix::process::geteuid().as_raw())
}

pub(super) fn greeting(ring: u32) -> [u8; GREETING] {
    let mut bytes = *b"softrnic\x01\0\0\0\0\0\0\0";
    bytes[12..].copy_from_slice(&ring.to_le_bytes());
    bytes
}

/// Sends the memory of a session, with two rings of `ring` bytes.
pub(super) fn greet(socket: BorrowedFd<'_>, memory: BorrowedFd<'_>, ring: u32) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [memory];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let bytes = greeting(ring);
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, flags).map(drop)
}

/// Receives what [`greet`] sends.
///
/// # Errors
///
/// `Ok(None)` where there is nothing yet.
pub(super) fn greeted(socket: BorrowedFd<'_>, ring: u32) -> Result<Option<OwnedFd>, Garbage> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; GREETING + 1];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
        Ok(message) => message,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        Err(_) => return Err(Garbage("a socket that cannot be read")),
    };
    let mut descriptors = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(more) = part {
            descriptors.extend(more);
        }
    }
    if message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(Garbage("a greeting that is too long"));
    }
    if bytes.get(..message.bytes) != Some(&greeting(ring)) {
        return Err(Garbage("a greeting of another version"));
    }
    match descriptors.pop() {
        Some(memory) if descriptors.is_empty() => Ok(Some(memory)),
        _ => Err(Garbage("a greeting without memory")),
    }
}

/// Wakes the thread of the other process. Where there is no room for a bell, others are there that wake it.
pub(super) fn send_wakeup(socket: impl AsFd) {
    // Where the other process has gone, the socket tells that by itself.
    let _ = rustix::net::send(socket, &[1], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// Takes the wake-ups that have come. They mean no more than that there is something to do.
pub(super) fn take_wakeups(socket: impl AsFd) {
    let socket = socket.as_fd();
    let mut byte = [0];
    // A peer that rings all the time is heard again later.
    for _ in 0..64 {
        match rustix::net::recv(socket, &mut byte, RecvFlags::DONTWAIT) {
            Ok((0, _)) | Err(_) => return,
            Ok(_) => {}
        }
    }
}
