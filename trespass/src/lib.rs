//! Sockets and messages over RDMA for programs that do not use verbs directly. If RDMA is unavailable, they use TCP.
//!
//! A program written for `std::net` changes its imports:
//!
//! ```
//! use std::io::{self, Read, Write};
//! use std::thread;
//!
//! use trespass::net::{Listener, Shutdown, Stream};
//!
//! fn main() -> io::Result<()> {
//!     let listener = Listener::bind("127.0.0.1:0")?;
//!     let address = listener.local_addr()?;
//!     let server = thread::spawn(move || -> io::Result<u64> {
//!         let (mut stream, _) = listener.accept()?;
//!         io::copy(&mut stream.try_clone()?, &mut stream)
//!     });
//!
//!     let mut stream = Stream::connect(address)?;
//!     println!("{}", stream.stats()?); // the device, or TCP and the reason
//!     stream.write_all(b"hello")?;
//!     stream.shutdown(Shutdown::Write)?;
//!     let mut reply = String::new();
//!     stream.read_to_string(&mut reply)?;
//!     assert_eq!(reply, "hello");
//!     assert_eq!(server.join().expect("the server panicked")?, 5);
//!     Ok(())
//! }
//! ```
//!
//! On a machine without an RDMA NIC, this program uses TCP. With the feature `softrnic` it uses a NIC in software.
//!
//! | to | use |
//! |---|---|
//! | exchange bytes, as with `std::net` | [`net`]: `Listener`, `Stream`, and `Reader` in place of `BufReader` |
//! | exchange messages with their boundaries | [`Acceptor`], [`Connection`]; [`Buf`] to send without a copy |
//! | do both in async programs | `tokio`, with the feature `tokio` |
//! | let the peer read and write memory | [`Region`], [`Grant`], [`Batch`] |
//! | receive messages in memory of the program or of a GPU | [`Connection::recv_into_region`] |
//! | wait for several connections | [`poll()`], or `descriptor` of a connection in an event loop |
//! | set the transport, the device, memory and time-outs | [`Options`], for a [`Handle`] that threads share |
//! | run an event loop on one thread, without locks | [`Worker`] |
//! | find out why a host does not use RDMA | [`doctor()`], `stats()` of a connection |
//!
//! Features: `softrnic` (the NIC in software), `tokio`.

mod backend;
mod connection;
mod doctor;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod memory;
mod poll;
mod proto;
mod region;
mod worker;

pub mod net;
#[cfg(feature = "tokio")]
pub mod tokio;

pub use connection::{Acceptor, Connection};
pub use doctor::{DeviceReport, PortReport, Report, doctor};
pub use memory::{Buf, Pool};
pub use poll::{Interest, poll};
pub use proto::{Failure, Placed};
pub use region::{Batch, Grant, OpenRegion, Region, RegionKey, Registrar, ReleaseError, Ticket, Transferring};
#[cfg(feature = "tokio")]
#[doc(hidden)]
pub use worker::Readable;
pub use worker::{ConnectionId, Handle, Kind, ListenId, Options, Spin, Stats, Transport, Wait, Worker};
#[doc(hidden)]
pub use worker::{Event, Generation, PerProcess, without_signals};
