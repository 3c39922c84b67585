//! Sockets and messages over RDMA for programs that do not use verbs directly. If RDMA is unavailable, they use TCP.
//!
//! | layer | module | what |
//! |---|---|---|
//! | 4 | [`net`] | `Listener`, `Stream`: shaped as `std::net` |
//! | 5 | `tokio` | the same as futures: with the feature `tokio` |
//! | 4 | `connection` | [`Connection`], [`Acceptor`]: messages |
//! | 4 | `region` | [`Region`], [`Grant`], [`Batch`]: memory that the peer reads and writes directly |
//! | 3 | `worker` | the loop that drives connections over a backend, and the shared worker that blocking calls drive |
//! | 2 | `backend` | transports of SENDs: `verbs`, `tcp` |
//! | 1 | `proto` | a connection as a state machine: no I/O, clock, threads or unsafe code |
//! | 0 | `memory` | buffers: a pool, registered with the device once |

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
pub use proto::Failure;
pub use region::{Batch, Grant, OpenRegion, Region, RegionKey, Registrar, ReleaseError, Ticket, Transferring};
#[cfg(feature = "tokio")]
#[doc(hidden)]
pub use worker::Readable;
pub use worker::{ConnectionId, Handle, Kind, ListenId, Options, Spin, Stats, Transport, Wait, Worker};
#[doc(hidden)]
pub use worker::{Event, Generation, PerProcess, without_signals};
