//! Datagrams with control messages: `sendmsg(2)`, `recvmmsg(2)`. rustix supports no control messages of IP.

use std::mem::{MaybeUninit, size_of};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use rustix::io::Errno;

/// The address of a datagram, in the layout of `struct sockaddr_in` or `struct sockaddr_in6`.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(crate) struct Name {
    bytes: [u8; size_of::<libc::sockaddr_in6>()],
    length: u32,
}

impl Name {
    const EMPTY: Self = Self { bytes: [0; size_of::<libc::sockaddr_in6>()], length: 0 };

    pub(crate) fn ipv4(address: Ipv4Addr, port: u16) -> Self {
        let mut name = Self::new(libc::AF_INET, port, size_of::<libc::sockaddr_in>());
        name.bytes[4..8].copy_from_slice(&address.octets());
        name
    }

    /// `scope` is the index of the interface of a link-local address.
    pub(crate) fn ipv6(address: Ipv6Addr, port: u16, flow_label: u32, scope: u32) -> Self {
        let mut name = Self::new(libc::AF_INET6, port, size_of::<libc::sockaddr_in6>());
        name.bytes[4..8].copy_from_slice(&(flow_label & 0xf_ffff).to_be_bytes());
        name.bytes[8..24].copy_from_slice(&address.octets());
        name.bytes[24..28].copy_from_slice(&scope.to_ne_bytes());
        name
    }

    fn new(family: i32, port: u16, length: usize) -> Self {
        // The conversions are lossless: both numbers are small.
        let mut name = Self { length: length as u32, ..Self::EMPTY };
        name.bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
        name.bytes[2..4].copy_from_slice(&port.to_be_bytes());
        name
    }

    /// Returns the address and the port. An IPv4 address is mapped to `::ffff:a.b.c.d`.
    pub(crate) fn address(&self) -> Option<(Ipv6Addr, u16)> {
        let [family, family_end, port, port_end, ..] = self.bytes;
        let port = u16::from_be_bytes([port, port_end]);
        match i32::from(u16::from_ne_bytes([family, family_end])) {
            libc::AF_INET => self.bytes[4..].first_chunk::<4>().map(|&octets| Ipv4Addr::from(octets).to_ipv6_mapped()),
            libc::AF_INET6 => self.bytes[8..].first_chunk::<16>().map(|&octets| octets.into()),
            _ => None,
        }
        .map(|address| (address, port))
    }
}

/// The length of the header of a control message (`struct cmsghdr`), whose data follows without padding.
const HEADER: usize = size_of::<libc::cmsghdr>();
/// The space for control messages. The largest ones are those of a timestamp, with 152 bytes.
const SPACE: usize = 256;

/// Control messages (`cmsg(3)`). The kernel copies them, so this is safe code.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(crate) struct Control {
    bytes: [u8; SPACE],
    length: usize,
}

impl Control {
    pub(crate) const EMPTY: Self = Self { bytes: [0; SPACE], length: 0 };

    /// Appends a message. A message without space is left out; all messages of a datagram together are far shorter.
    pub(crate) fn push(&mut self, level: i32, kind: i32, data: &[u8]) {
        let length = HEADER + data.len();
        let Some(message) = self.bytes[self.length..].get_mut(..aligned(length)) else { return };
        let (header, rest) = message.split_at_mut(HEADER);
        // In all ABIs of Linux, the length has the size of a pointer, and the two other fields end the header.
        header[..size_of::<usize>()].copy_from_slice(&length.to_ne_bytes());
        header[HEADER - 8..HEADER - 4].copy_from_slice(&level.to_ne_bytes());
        header[HEADER - 4..].copy_from_slice(&kind.to_ne_bytes());
        rest[..data.len()].copy_from_slice(data);
        self.length += aligned(length);
    }

    /// Returns the level, the type and the data of each message.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (i32, i32, &[u8])> {
        let mut rest = &self.bytes[..self.length];
        std::iter::from_fn(move || {
            let header = rest.get(..HEADER)?;
            let length = usize::from_ne_bytes(*header.first_chunk()?);
            let level = i32::from_ne_bytes(*header[HEADER - 8..].first_chunk()?);
            let kind = i32::from_ne_bytes(*header[HEADER - 4..].first_chunk()?);
            let data = rest.get(HEADER..length)?;
            rest = rest.get(aligned(length)..).unwrap_or_default();
            Some((level, kind, data))
        })
    }
}

fn aligned(length: usize) -> usize {
    length.next_multiple_of(size_of::<usize>())
}

/// Sends a datagram, or several ones if a control message requests segmentation. Never blocks.
pub(crate) fn send(socket: impl AsFd, to: &Name, bytes: &[u8], control: &Control) -> Result<(), Errno> {
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut message = empty_message();
    message.msg_name = to.bytes.as_ptr().cast_mut().cast();
    message.msg_namelen = to.length;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes.as_ptr().cast_mut().cast();
    message.msg_controllen = control.length as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the message contains pointers to memory of the given lengths, which the kernel only reads.
    let sent = unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const message, flags) };
    if sent < 0 { Err(last()) } else { Ok(()) }
}

/// The number of datagrams that are received at once, each of which may consist of segments.
const COUNT: usize = 16;
/// The space for a datagram.
const LENGTH: usize = 1 << 16;

/// Space for received datagrams.
#[derive(Debug)]
pub(crate) struct Received {
    data: Box<[u8]>,
    heads: [Head; COUNT],
    count: usize,
}

#[derive(Clone, Copy, Debug)]
struct Head {
    name: Name,
    control: Control,
    length: usize,
    is_truncated: bool,
}

/// A received datagram.
#[derive(Debug)]
pub(crate) struct Datagram<'a> {
    pub(crate) name: &'a Name,
    pub(crate) control: &'a Control,
    pub(crate) bytes: &'a [u8],
    /// Whether the datagram or its control messages were longer than the space for them.
    pub(crate) is_truncated: bool,
}

impl Received {
    pub(crate) fn new() -> Self {
        let head = Head { name: Name::EMPTY, control: Control::EMPTY, length: 0, is_truncated: false };
        Self { data: vec![0; COUNT * LENGTH].into(), heads: [head; COUNT], count: 0 }
    }

    /// Replaces the datagrams by those that have arrived, which may be none. Never blocks. `flags` are flags of
    /// `recvmsg(2)`.
    pub(crate) fn receive(&mut self, socket: impl AsFd, flags: i32) -> Result<usize, Errno> {
        self.count = 0;
        let mut parts = [const { MaybeUninit::<libc::iovec>::uninit() }; COUNT];
        let mut messages = [libc::mmsghdr { msg_hdr: empty_message(), msg_len: 0 }; COUNT];
        let spaces = self.heads.iter_mut().zip(self.data.chunks_exact_mut(LENGTH));
        for (((head, data), part), message) in spaces.zip(&mut parts).zip(&mut messages) {
            let header = &mut message.msg_hdr;
            header.msg_name = head.name.bytes.as_mut_ptr().cast();
            header.msg_namelen = head.name.bytes.len() as u32;
            header.msg_iov = part.write(libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: data.len() });
            header.msg_iovlen = 1;
            header.msg_control = head.control.bytes.as_mut_ptr().cast();
            header.msg_controllen = SPACE as _;
        }
        let flags = flags | libc::MSG_DONTWAIT;
        // SAFETY: each of the messages contains pointers to memory of the given lengths, which `self` owns and lends to
        // nothing else, and which may be written.
        let count = unsafe {
            let descriptor = socket.as_fd().as_raw_fd();
            libc::recvmmsg(descriptor, messages.as_mut_ptr(), COUNT as u32, flags as _, ptr::null_mut())
        };
        let count = match usize::try_from(count).map_err(|_| last()) {
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(error) => return Err(error),
        };
        for (head, message) in self.heads.iter_mut().zip(&messages).take(count) {
            head.length = (message.msg_len as usize).min(LENGTH);
            head.name.length = message.msg_hdr.msg_namelen;
            head.control.length = SPACE.min(message.msg_hdr.msg_controllen as _);
            head.is_truncated = message.msg_hdr.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0;
        }
        self.count = count;
        Ok(count)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Datagram<'_>> {
        self.heads.iter().zip(self.data.chunks_exact(LENGTH)).take(self.count).map(|(head, data)| Datagram {
            name: &head.name,
            control: &head.control,
            bytes: &data[..head.length],
            is_truncated: head.is_truncated,
        })
    }
}

fn empty_message() -> libc::msghdr {
    // SAFETY: null pointers and zero lengths are valid values of all fields.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// Returns the error of the last system call that failed on this thread.
pub(super) fn last() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_are_read_as_they_were_written() {
        let mut control = Control::EMPTY;
        control.push(1, 2, &[3]);
        control.push(4, 5, &[6; 20]);
        control.push(7, 8, &[]);
        let expected: [(i32, i32, &[u8]); 3] = [(1, 2, &[3]), (4, 5, &[6; 20]), (7, 8, &[])];
        assert!(control.iter().eq(expected));
        control.push(9, 9, &[0; SPACE]);
        assert!(control.iter().eq(expected), "the message is too long");
    }

    #[test]
    fn layout_of_control_messages_is_that_of_libc() {
        let mut control = Control::EMPTY;
        control.push(1, 2, &[3, 4, 5]);
        let mut message = empty_message();
        message.msg_control = control.bytes.as_mut_ptr().cast();
        message.msg_controllen = control.length as _;
        // SAFETY: the message contains one control message, with three bytes of data.
        let (header, data, space) = unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (header.read(), libc::CMSG_DATA(header).cast::<[u8; 3]>().read(), libc::CMSG_SPACE(3))
        };
        assert_eq!((header.cmsg_level, header.cmsg_type, data), (1, 2, [3, 4, 5]));
        // SAFETY: `CMSG_LEN` only computes a length.
        assert_eq!(header.cmsg_len, unsafe { libc::CMSG_LEN(3) } as usize);
        assert_eq!(control.length, space as usize);
    }

    #[test]
    fn malformed_control_messages_end_the_list() {
        for length in [0, HEADER - 1, SPACE + 1, usize::MAX] {
            let mut control = Control::EMPTY;
            control.push(1, 2, &[3]);
            control.bytes[..size_of::<usize>()].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(control.iter().count(), 0, "{length}");
        }
    }

    #[test]
    fn name_returns_its_address() {
        let address = Ipv4Addr::new(192, 0, 2, 1);
        assert_eq!(Name::ipv4(address, 7).address(), Some((address.to_ipv6_mapped(), 7)));
        let address = "2001:db8::1".parse().unwrap();
        assert_eq!(Name::ipv6(address, 8, 1 << 19, 9).address(), Some((address, 8)));
        assert_eq!(Name::EMPTY.address(), None);
    }
}
