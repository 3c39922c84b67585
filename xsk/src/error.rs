//! Errors: the failed step, the errno, the likely cause and the remedy.

use std::borrow::Cow;
use std::fmt;
use std::io;

use crate::sys::Errno;

/// A failed step.
///
/// `Display` prints one line: what failed, why, and the remedy.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    step: Step,
    errno: Errno,
    kind: ErrorKind,
    /// The object of the step, such as `eth0 queue 3`.
    subject: String,
    cause: Cow<'static, str>,
}

/// The step that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Step {
    /// Mapping the memory of a UMEM.
    MapUmem,
    /// Finding an interface.
    FindInterface,
    /// Opening the socket.
    OpenSocket,
    /// Registering the UMEM.
    RegisterUmem,
    /// Setting the size of a ring.
    SizeRing,
    /// Mapping a ring.
    MapRing,
    /// Enabling busy polling.
    EnableBusyPoll,
    /// Binding the socket to an interface and queue.
    Bind,
    /// Reading statistics or options.
    ReadOption,
    /// Waking the kernel to send.
    Send,
    /// Waking the kernel to receive.
    Receive,
    /// Waiting for packets.
    Wait,
    /// Creating the map of sockets.
    CreateMap,
    /// Changing the map of sockets.
    UpdateMap,
    /// Loading the XDP program.
    LoadProgram,
    /// Attaching the XDP program.
    AttachProgram,
    /// Running the XDP program on a test frame.
    TestProgram,
}

impl Step {
    /// The words after "cannot".
    fn words(self) -> &'static str {
        match self {
            Self::MapUmem => "allocate",
            Self::FindInterface => "find",
            Self::OpenSocket => "open an AF_XDP socket for",
            Self::RegisterUmem => "register the UMEM for",
            Self::SizeRing => "create a ring for",
            Self::MapRing => "map a ring of",
            Self::EnableBusyPoll => "enable busy polling on",
            Self::Bind => "bind to",
            Self::ReadOption => "read the options of",
            Self::Send => "send on",
            Self::Receive => "receive on",
            Self::Wait => "wait for",
            Self::CreateMap => "create an XSKMAP of",
            Self::UpdateMap => "change the XSKMAP slot of",
            Self::LoadProgram => "load",
            Self::AttachProgram => "attach an XDP program to",
            Self::TestProgram => "test",
        }
    }
}

/// The kind of an error, for programs to match on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A capability is missing.
    PermissionDenied,
    /// The kernel does not support AF_XDP, or is too old for a requested feature.
    Unsupported,
    /// The UMEM exceeds RLIMIT_MEMLOCK.
    MemoryLimit,
    /// Not enough memory, or not enough huge pages.
    OutOfMemory,
    /// The interface does not exist.
    NoInterface,
    /// The interface has no such queue.
    NoQueue,
    /// Another socket uses the queue, or a closed socket has not released it yet.
    QueueBusy,
    /// The driver does not support zero copy for this queue.
    NoZeroCopy,
    /// Another program or link is attached.
    ProgramAttached,
    /// A program is attached in the other mode.
    OtherMode,
    /// The driver does not support native mode.
    NoNativeMode,
    /// The MTU is too large for a program without multi-buffer support, or for zero copy.
    MtuTooLarge,
    /// The link is down.
    LinkDown,
    /// The interface was removed.
    DeviceGone,
    /// The kernel has rejected a descriptor; the socket no longer sends.
    Rejected,
    /// An option has an invalid value.
    InvalidOption,
    /// None of the other kinds.
    Other,
}

impl Error {
    /// The error of a system call.
    pub(crate) fn new(step: Step, errno: Errno, subject: impl Into<String>) -> Self {
        let (kind, cause) = explain(step, errno);
        Self { step, errno, kind, subject: subject.into(), cause: Cow::Borrowed(cause) }
    }

    /// The error of an option that the kernel would reject with EINVAL.
    pub(crate) fn invalid(step: Step, subject: impl Into<String>, cause: String) -> Self {
        Self {
            step,
            errno: libc::EINVAL,
            kind: ErrorKind::InvalidOption,
            subject: subject.into(),
            cause: Cow::Owned(cause),
        }
    }

    /// Returns this error with the kind and the cause that the caller has found.
    pub(crate) fn because(mut self, kind: ErrorKind, cause: String) -> Self {
        (self.kind, self.cause) = (kind, Cow::Owned(cause));
        self
    }

    /// The step that failed.
    pub fn step(&self) -> Step {
        self.step
    }

    /// The errno of the system call, or EINVAL for an option that was rejected before any system call.
    pub fn errno(&self) -> i32 {
        self.errno
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}: ", self.step.words(), self.subject)?;
        match name(self.errno) {
            "" => write!(f, "errno {}", self.errno)?,
            name => f.write_str(name)?,
        }
        if !self.cause.is_empty() {
            write!(f, ": {}", self.cause)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        io::Error::new(io::Error::from_raw_os_error(error.errno).kind(), error)
    }
}

/// The usual cause and the remedy.
fn explain(step: Step, errno: Errno) -> (ErrorKind, &'static str) {
    use ErrorKind as K;
    match (step, errno) {
        (Step::OpenSocket, libc::EPERM) => {
            (K::PermissionDenied, "no CAP_NET_RAW in this network namespace; run as root or pass in an open socket")
        }
        (Step::OpenSocket, libc::EAFNOSUPPORT) => {
            (K::Unsupported, "the kernel does not support AF_XDP; use one with CONFIG_XDP_SOCKETS")
        }
        (Step::MapUmem, libc::ENOMEM) => {
            (K::OutOfMemory, "not enough memory; for huge pages, raise /proc/sys/vm/nr_hugepages")
        }
        (Step::RegisterUmem, libc::ENOBUFS) => {
            (K::MemoryLimit, "the UMEM exceeds RLIMIT_MEMLOCK; raise it with ulimit -l, or use fewer frames")
        }
        (Step::RegisterUmem, libc::ENOMEM) => (K::OutOfMemory, "the kernel cannot pin the memory; use fewer frames"),
        (Step::RegisterUmem, libc::EINVAL) => (
            K::InvalidOption,
            "the kernel rejects the frame size, the headroom or the metadata; lower the headroom, or use a newer kernel",
        ),
        (Step::RegisterUmem | Step::SizeRing, libc::EBUSY) => {
            (K::InvalidOption, "the socket has a UMEM or is bound already; pass in a new socket")
        }
        (Step::SizeRing, libc::EINVAL) => {
            (K::InvalidOption, "the ring exists already, or its size is not a power of two; pass in a new socket")
        }
        (Step::SizeRing | Step::MapRing, libc::ENOMEM) => (K::OutOfMemory, "not enough memory; use a smaller ring"),
        (Step::MapRing, libc::ENOSYS | libc::ENOPROTOOPT) => {
            (K::Unsupported, "the kernel reports the rings in the format of before Linux 5.4; use a newer kernel")
        }
        (Step::EnableBusyPoll, libc::EPERM) => {
            (K::PermissionDenied, "preferred busy polling requires CAP_NET_ADMIN; run as root")
        }
        (Step::EnableBusyPoll, libc::ENOPROTOOPT) => {
            (K::Unsupported, "busy polling requires Linux 5.11; open the socket without it")
        }
        (Step::Bind, libc::EBUSY) => {
            (K::QueueBusy, "another socket uses this queue; choose another queue, or end the other program")
        }
        (Step::Bind, libc::EOPNOTSUPP) => (
            K::NoZeroCopy,
            "the driver does not support zero copy for this queue, or not with multi-buffer; allow copy mode",
        ),
        (Step::Bind, libc::ENODEV) => (K::NoInterface, "the interface does not exist any more; check ip link"),
        (Step::Bind, libc::EBADF) => {
            (K::InvalidOption, "the interface of another socket with this UMEM was removed; close that socket first")
        }
        (Step::Bind, libc::EINVAL) => (
            K::InvalidOption,
            "the kernel rejects the combination; multi-buffer requires Linux 6.6, zero copy an MTU that fits a frame, and a \
             socket with SO_BINDTODEVICE its own interface",
        ),
        (Step::Bind, libc::ENETDOWN) => (K::LinkDown, "the link is down; run ip link set DEVICE up"),
        (Step::Send | Step::Receive | Step::Wait, libc::ENXIO) => {
            (K::DeviceGone, "the interface was removed; close the socket and open it again")
        }
        (Step::Send | Step::Receive | Step::Wait, libc::ENETDOWN) => {
            (K::LinkDown, "the link is down or was removed; run ip link set DEVICE up")
        }
        (Step::Send, libc::EINVAL) => {
            (K::Rejected, "the kernel rejects the metadata of a packet; close the socket and open it again")
        }
        (
            Step::LoadProgram | Step::CreateMap | Step::AttachProgram | Step::UpdateMap | Step::TestProgram,
            libc::EPERM,
        ) => (
            K::PermissionDenied,
            "XDP programs require CAP_BPF and CAP_NET_ADMIN outside of any user namespace; run as root or pass in a map",
        ),
        (Step::LoadProgram, libc::EINVAL) => {
            (K::Unsupported, "the verifier rejects the program; multi-buffer requires Linux 5.18")
        }
        (Step::AttachProgram, libc::EBUSY) => (
            K::ProgramAttached,
            "another XDP program is attached; remove it with ip link set DEVICE xdp off, or use its map",
        ),
        (Step::AttachProgram, libc::EEXIST) => {
            (K::OtherMode, "a program is attached in the other mode; use that mode, or remove the program")
        }
        (Step::AttachProgram, libc::EOPNOTSUPP) => (K::NoNativeMode, "the driver has no native XDP; use generic mode"),
        (Step::AttachProgram, libc::ERANGE) => (
            K::MtuTooLarge,
            "the MTU is too large for a program without multi-buffer; lower it, or use Program::load_multi_buffer",
        ),
        (Step::AttachProgram, libc::ENOSPC) => (
            K::InvalidOption,
            "the interface has fewer queues than its veth peer sends on; use generic mode, or add queues with ethtool -L",
        ),
        (Step::AttachProgram, libc::EINVAL) => {
            (K::Unsupported, "the kernel rejects the link; XDP links require Linux 5.9")
        }
        (Step::AttachProgram, libc::ENODEV) => (K::NoInterface, "the interface does not exist; check ip link"),
        (Step::UpdateMap, libc::E2BIG) => {
            (K::NoQueue, "the map has fewer slots than this queue number; create a larger map")
        }
        (Step::UpdateMap, libc::EOPNOTSUPP) => {
            (K::InvalidOption, "not an AF_XDP socket; insert a socket of this crate")
        }
        (Step::FindInterface, libc::ENODEV | libc::ENXIO) => (K::NoInterface, "no such interface; check ip link"),
        _ => (K::Other, ""),
    }
}

/// The name of an errno that a step can return.
fn name(errno: Errno) -> &'static str {
    macro_rules! names {
        ($($name:ident)*) => {
            match errno {
                $(libc::$name => stringify!($name),)*
                _ => "",
            }
        };
    }
    names!(E2BIG EACCES EAFNOSUPPORT EAGAIN EBADF EBUSY EEXIST EFAULT EINTR EINVAL EMFILE ENETDOWN ENFILE ENOBUFS ENODEV ENOENT ENOMEM
        ENOPROTOOPT ENOSPC ENOSYS EOPNOTSUPP ENXIO EPERM ERANGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_prints_step_errno_cause_and_remedy() {
        let error = Error::new(Step::Bind, libc::EBUSY, "eth0 queue 3");
        assert_eq!(
            error.to_string(),
            "cannot bind to eth0 queue 3: EBUSY: another socket uses this queue; choose another queue, or end the other program"
        );
        assert_eq!((error.step(), error.errno(), error.kind()), (Step::Bind, libc::EBUSY, ErrorKind::QueueBusy));
    }

    #[test]
    fn unknown_errno_prints_its_number() {
        let error = Error::new(Step::Wait, 4095, "eth0 queue 0");
        assert_eq!(error.to_string(), "cannot wait for eth0 queue 0: errno 4095");
        assert_eq!(error.kind(), ErrorKind::Other);
    }

    #[test]
    fn io_error_keeps_kind_and_text() {
        let error = io::Error::from(Error::new(Step::OpenSocket, libc::EPERM, "eth0 queue 0"));
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("CAP_NET_RAW"), "{error}");
    }
}
