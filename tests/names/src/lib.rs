//! Names of the host that tests use: TCP ports, folders, and unique names for objects such as network namespaces.
//!
//! A host has many processes, such as the tests of another clone of this repository. Between two moments, any of them
//! can take a name that is only *free* at the first moment. A test therefore reserves a name and keeps it.
//!
//! A process ID is not unique: containers that share `/tmp` have their own process IDs.

use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::net::{self, Ipv4Addr, Ipv6Addr};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs, io, thread};

use socket2::{Domain, Socket, Type};

/// The first port that is reserved. Lower ports belong to services.
const FIRST: u16 = 20_000;
/// The first port that the kernel (by default) and softrnic's connection manager assign automatically.
const END: u16 = 32_768;

/// A TCP port that is reserved until the value is dropped.
///
/// A socket is bound to the port on all addresses, but it does not listen. So:
///
/// - a server of the test can bind the port and listen on it, provided that it sets `SO_REUSEADDR`, as
///   [`std::net::TcpListener`], perftest and rdma-core's programs do,
/// - connecting to the port is refused while no server listens,
/// - the kernel does not assign the port to another socket, and another `Port` has another number.
///
/// The number is below the ports that are assigned automatically. It is therefore also free among the ports of softrnic's
/// connection manager, which are not TCP ports.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _socket: Socket,
}

impl Port {
    /// Reserves a port.
    ///
    /// # Panics
    ///
    /// If all ports are in use, or if there are no sockets.
    #[must_use]
    #[track_caller]
    pub fn reserve() -> Self {
        let count = END - FIRST;
        // The start is random, because other processes search too.
        let start = (random() % u64::from(count)) as u16;
        for step in 0..count {
            let number = FIRST + (start + step) % count;
            match bound(number) {
                Ok(socket) => return Self { number, _socket: socket },
                Err(error) if matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::PermissionDenied) => {}
                Err(error) => panic!("cannot bind TCP port {number}: {error}"),
            }
        }
        panic!("all TCP ports from {FIRST} to {} are in use", END - 1)
    }

    /// Returns the number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Returns an IPv4 multicast group that belongs to the port: only a program that has reserved the port uses it.
    #[must_use]
    pub fn group(&self, last: u8) -> Ipv4Addr {
        let [high, low] = self.number.to_be_bytes();
        Ipv4Addr::new(239, high, low, last)
    }

    /// Returns the number, and reserves it until this process exits.
    #[must_use]
    pub fn keep(self) -> u16 {
        let number = self.number;
        // The kernel closes the socket.
        std::mem::forget(self);
        number
    }
}

/// Returns a socket that is bound to the port on all addresses of IPv6 and IPv4, or of IPv4 if there is no IPv6.
fn bound(port: u16) -> io::Result<Socket> {
    match bound_to((Ipv6Addr::UNSPECIFIED, port).into()) {
        Err(error) if error.kind() != ErrorKind::AddrInUse => bound_to((Ipv4Addr::UNSPECIFIED, port).into()),
        bound => bound,
    }
}

fn bound_to(address: net::SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    // Without SO_REUSEADDR, the kernel binds the socket only if no other socket has the port, such as that of another
    // `Port`. With it, the socket shares the port with a server.
    socket.bind(&address.into())?;
    socket.set_reuse_address(true)?;
    Ok(socket)
}

/// A name of the host that only one process has at a time. It is for programs that use a fixed name, such as a port that
/// they have no option for.
#[derive(Debug)]
pub struct Turn {
    _socket: UnixDatagram,
}

impl Turn {
    /// Waits until no other process of this network namespace has the name.
    ///
    /// # Errors
    ///
    /// The kernel's error if the name is too long.
    pub fn wait_for(name: &str) -> io::Result<Self> {
        // The kernel frees an abstract name when the process ends.
        let address = SocketAddr::from_abstract_name(format!("sideway-test/{name}"))?;
        loop {
            match UnixDatagram::bind_addr(&address) {
                Ok(socket) => return Ok(Self { _socket: socket }),
                Err(error) if error.kind() == ErrorKind::AddrInUse => thread::sleep(Duration::from_millis(50)),
                Err(error) => return Err(error),
            }
        }
    }
}

/// A folder for temporary files. Dropping the value removes it with all that it contains.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Creates a folder in the directory for temporary files. Only this user has access to it.
    ///
    /// # Panics
    ///
    /// If the directory is not writable.
    #[must_use]
    #[track_caller]
    #[expect(clippy::new_without_default, reason = "creating a folder is no default")]
    pub fn new() -> Self {
        Self::new_in(&env::temp_dir())
    }

    /// Creates a folder in `parent`.
    ///
    /// # Panics
    ///
    /// If `parent` is not writable.
    #[must_use]
    #[track_caller]
    pub fn new_in(parent: &Path) -> Self {
        let path = parent.join(unique("sideway-test-"));
        // It fails if the name exists.
        match fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => Self(path),
            Err(error) => panic!("cannot create {}: {error}", path.display()),
        }
    }

    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the path of an entry.
    #[must_use]
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        match fs::remove_dir_all(&self.0) {
            // A test may have removed it.
            Err(error) if error.kind() != ErrorKind::NotFound => {
                debug_assert!(thread::panicking(), "cannot remove {}: {error}", self.0.display());
            }
            _ => {}
        }
    }
}

/// Returns a name that no other call returns, in this process or another: `prefix` and 12 hexadecimal digits. With a
/// prefix of up to 3 characters, it fits the name of a network device.
#[must_use]
pub fn unique(prefix: &str) -> String {
    format!("{prefix}{:012x}", random() >> 16)
}

/// Returns a random number. The keys of the hasher come from the kernel, and differ in each call.
#[must_use]
pub fn random() -> u64 {
    RandomState::new().hash_one(0)
}

#[cfg(test)]
mod tests;
