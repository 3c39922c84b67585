//! Attaches a program by a link, which the kernel removes when its last descriptor is closed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::error::{Error, Step};
use crate::interface::Interface;
use crate::sys::bpf;

const GENERIC: u32 = 1 << 1;
const NATIVE: u32 = 1 << 2;

/// The place in the kernel at which the program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AttachMode {
    /// In the driver if the driver supports this with the interface's MTU and queues, otherwise in the network stack.
    #[default]
    Auto,
    /// In the driver.
    #[doc(alias = "XDP_FLAGS_DRV_MODE")]
    Native,
    /// In the network stack, on any interface; slower.
    #[doc(alias = "XDP_FLAGS_SKB_MODE")]
    Generic,
}

/// A program that is attached to an interface. It is detached when the value is dropped, or when the process ends.
///
/// Its descriptor is the descriptor of the link: a process that receives it keeps the program attached.
#[doc(alias = "bpf_link")]
#[derive(Debug)]
pub struct Attached {
    link: OwnedFd,
    is_native: bool,
}

impl Attached {
    /// Whether the program runs in the driver.
    pub fn is_native(&self) -> bool {
        self.is_native
    }
}

impl AsFd for Attached {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

impl From<Attached> for OwnedFd {
    fn from(attached: Attached) -> Self {
        attached.link
    }
}

pub(super) fn attach(program: BorrowedFd<'_>, interface: &Interface, mode: AttachMode) -> Result<Attached, Error> {
    let link = |flags, is_native| {
        let link = bpf::link_xdp(program, interface.index(), flags);
        link.map(|link| Attached { link, is_native }).map_err(|errno| {
            // The kernel returns EINVAL for a missing interface too.
            let is_gone = errno == libc::EINVAL && Interface::by_index(interface.index()).is_err();
            Error::new(Step::AttachProgram, if is_gone { libc::ENODEV } else { errno }, interface.name())
        })
    };
    match mode {
        AttachMode::Native => link(NATIVE, true),
        AttachMode::Generic => link(GENERIC, false),
        // A driver that has native mode refuses it with ERANGE if the MTU is too large for it, and veth with ENOSPC if
        // the peer has more queues.
        AttachMode::Auto => match link(NATIVE, true) {
            Err(error) if [libc::EOPNOTSUPP, libc::ENOSPC, libc::ERANGE].contains(&error.errno()) => {
                link(GENERIC, false)
            }
            done => done,
        },
    }
}
