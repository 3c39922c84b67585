//! The handshake that another process sends when it connects, and the memory that it attaches.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg, socketpair,
};

use crate::fuzz::Input;
use crate::ipc::session::{RING, SHARED};
use crate::ipc::shared::Shared;
use crate::ipc::socket::receive_handshake;

/// Handles a handshake. The first byte of the input selects the attached descriptors, and the message follows. Returns
/// whether the handshake starts a session.
///
/// # Panics
///
/// Panics if a handshake without valid session memory is accepted.
pub fn handshake(input: &[u8]) -> bool {
    let mut input = Input(input);
    let choice = input.byte() % 5;
    // A socket of this type cannot send an empty message.
    let message = if input.is_empty() { &[0] } else { input.0 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (own, peer) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("two sockets");
    let files = files(choice).expect("files of memory");
    send(&peer, message, &files.iter().map(AsFd::as_fd).collect::<Vec<_>>());
    let shared = match receive_handshake(own.as_fd(), RING as u32) {
        Ok(memory) => Shared::accept(&memory.expect("the handshake arrived"), SHARED),
        Err(malformed) => Err(malformed),
    };
    assert!(shared.is_err() || choice == 0, "invalid session memory is accepted");
    shared.is_ok()
}

/// Creates the descriptors that are attached. They are session memory, no descriptor, memory of another size, memory
/// that can shrink, or two descriptors.
fn files(choice: u8) -> Result<Vec<OwnedFd>, Errno> {
    let sealed = |length| Shared::create(length).map(|(_, file)| file);
    Ok(match choice {
        0 => vec![sealed(SHARED)?],
        1 => Vec::new(),
        2 => vec![sealed(SHARED + 4096)?],
        3 => {
            let open = rustix::fs::memfd_create("softrnic", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
            rustix::fs::ftruncate(&open, SHARED as u64)?;
            vec![open]
        }
        _ => vec![sealed(SHARED)?, sealed(SHARED)?],
    })
}

fn send(socket: &OwnedFd, message: &[u8], files: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(files)), "two descriptors fit");
    }
    // A socket refuses a larger message, and then nothing would be received.
    let sent = sendmsg(socket, &[IoSlice::new(&message[..message.len().min(4096)])], &mut control, SendFlags::NOSIGNAL);
    sent.expect("a message within the process");
}
