//! A network interface.

use std::ffi::CString;
use std::fmt;
use std::os::fd::AsRawFd;

use crate::error::{Error, Step};
use crate::sys;

/// `SIOCETHTOOL`, which libc defines only for some C libraries.
const SIOCETHTOOL: libc::Ioctl = 0x8946;
/// `ETHTOOL_GCHANNELS`.
const GET_CHANNELS: u32 = 0x3c;

/// A network interface, by its index in the caller's network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    index: u32,
    name: String,
}

impl Interface {
    /// `if_nametoindex(name)` — finds an interface by its name.
    ///
    /// # Errors
    ///
    /// [`NoInterface`](crate::ErrorKind::NoInterface) if this network namespace has no such interface.
    #[doc(alias = "if_nametoindex")]
    pub fn by_name(name: &str) -> Result<Self, Error> {
        let find = CString::new(name).map_err(|_| libc::ENODEV).and_then(|name| sys::interface_index(&name));
        let index = find.map_err(|errno| Error::new(Step::FindInterface, errno, format!("interface {name}")))?;
        Ok(Self { index, name: name.to_owned() })
    }

    /// `if_indextoname(index)` — finds an interface by its index.
    ///
    /// # Errors
    ///
    /// [`NoInterface`](crate::ErrorKind::NoInterface) if this network namespace has no such interface.
    #[doc(alias = "if_indextoname")]
    pub fn by_index(index: u32) -> Result<Self, Error> {
        let name = sys::interface_name(index)
            .map_err(|errno| Error::new(Step::FindInterface, errno, format!("interface {index}")))?;
        Ok(Self { index, name })
    }

    /// The index.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `ETHTOOL_GCHANNELS` — the number of receive queues, if the driver reports it.
    #[doc(alias = "ETHTOOL_GCHANNELS")]
    pub fn rx_queues(&self) -> Option<u32> {
        let channels = self.channels()?;
        Some((channels.rx_count + channels.combined_count).max(1))
    }

    fn channels(&self) -> Option<Channels> {
        let mut channels = Channels { command: GET_CHANNELS, ..Channels::default() };
        let mut request = Request { name: [0; libc::IFNAMSIZ], data: &raw mut channels, rest: [0; 16] };
        let name = self.name.as_bytes();
        request.name.get_mut(..name.len())?.copy_from_slice(name);
        let socket = sys::socket(libc::AF_INET, libc::SOCK_DGRAM).ok()?;
        // SAFETY: the request is an `ifreq` whose data is an `ethtool_channels`, which this command fills in.
        unsafe { sys::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &mut request) }.ok()?;
        Some(channels)
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Channels {
    command: u32,
    max: [u32; 4],
    rx_count: u32,
    tx_count: u32,
    other_count: u32,
    combined_count: u32,
}

/// `struct ifreq`, with a pointer as its data.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    data: *mut Channels,
    rest: [u8; 16],
}
