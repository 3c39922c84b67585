//! Sockets between processes. They have abstract names. A socket carries a handshake and then wake-ups.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use super::codec::Malformed;
use crate::sys::descriptor::Descriptor;

/// The length of the handshake, which contains the protocol version and the size of the rings.
const HANDSHAKE_LENGTH: usize = 16;

/// Creates a socket that is nonblocking and closed on exec.
pub(super) fn new() -> Result<Descriptor, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Descriptor::open(|| rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None))
}

/// Returns the abstract address of a name. The kernel frees it when the process ends.
pub(super) fn address(name: &str) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new_abstract_name(name.as_bytes())
}

pub(super) fn handshake(ring: u32) -> [u8; HANDSHAKE_LENGTH] {
    let mut bytes = *b"softrnic\x01\0\0\0\0\0\0\0";
    bytes[12..].copy_from_slice(&ring.to_le_bytes());
    bytes
}

/// Sends the memory of a session, which contains two rings of `ring` bytes each.
pub(super) fn send_handshake(socket: BorrowedFd<'_>, memory: BorrowedFd<'_>, ring: u32) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [memory];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let bytes = handshake(ring);
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, flags).map(drop)
}

/// Receives the message of [`send_handshake`].
///
/// # Errors
///
/// Returns an error if the message is invalid. If the message has not arrived yet, this is no error, and the result is
/// `Ok(None)`.
pub(super) fn receive_handshake(socket: BorrowedFd<'_>, ring: u32) -> Result<Option<OwnedFd>, Malformed> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; HANDSHAKE_LENGTH + 1];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
        Ok(message) => message,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        Err(_) => return Err(Malformed("unreadable socket")),
    };
    let mut descriptors = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(more) = part {
            descriptors.extend(more);
        }
    }
    if message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(Malformed("handshake too long"));
    }
    if bytes.get(..message.bytes) != Some(&handshake(ring)) {
        return Err(Malformed("handshake of another version"));
    }
    match descriptors.pop() {
        Some(memory) if descriptors.is_empty() => Ok(Some(memory)),
        _ => Err(Malformed("handshake without memory")),
    }
}

/// Sends a wake-up to the thread of the other process. If the socket buffer is full, the wake-ups in it are sufficient.
pub(super) fn send_wakeup(socket: impl AsFd) {
    // If the other process has ended, the socket reports this.
    let _ = rustix::net::send(socket, &[1], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// Discards the wake-ups that have arrived. Their number has no meaning.
pub(super) fn take_wakeups(socket: impl AsFd) {
    let socket = socket.as_fd();
    let mut byte = [0];
    // The loop is limited, so that a flood of wake-ups delays nothing else.
    for _ in 0..64 {
        match rustix::net::recv(socket, &mut byte, RecvFlags::DONTWAIT) {
            Ok((0, _)) | Err(_) => return,
            Ok(_) => {}
        }
    }
}
