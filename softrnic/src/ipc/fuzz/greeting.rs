//! What who connects says first, and the memory that comes with it.

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
use crate::ipc::socket::greeted;

/// A greeting: a byte that says which descriptors come with it, and what is said. Whether there is a session then.
///
/// # Panics
///
/// A greeting is believed that comes without the memory of a session.
pub fn greeting(input: &[u8]) -> bool {
    let mut input = Input(input);
    let choice = input.byte() % 5;
    // Nothing said is no message of such a socket.
    let said = if input.is_empty() { &[0] } else { input.0 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (own, foe) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("two sockets");
    let files = files(choice).expect("files of memory");
    send(&foe, said, &files.iter().map(AsFd::as_fd).collect::<Vec<_>>());
    let shared = match greeted(own.as_fd(), RING as u32) {
        Ok(memory) => Shared::accept(&memory.expect("it has come"), SHARED),
        Err(garbage) => Err(garbage),
    };
    assert!(shared.is_err() || choice == 0, "memory that is none of a session is taken");
    shared.is_ok()
}

/// The memory of a session; none; memory of another size; memory that its maker can take away; or two.
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

fn send(socket: &OwnedFd, said: &[u8], files: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(files)), "there is room for two");
    }
    // More than a socket takes is not sent, and then nothing is heard.
    let sent = sendmsg(socket, &[IoSlice::new(&said[..said.len().min(4096)])], &mut control, SendFlags::NOSIGNAL);
    sent.expect("a message within the process");
}
