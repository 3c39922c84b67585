//! An authenticated connection between two processes of this crate. It uses trespass, over RDMA or TCP; a key
//! authenticates both sides.

mod accept;
mod connect;
mod ends;
mod fault;
mod options;

pub use accept::Listener;
pub use connect::{Patience, connect, reconnect};
pub use ends::{Link, Payload, Received, Receiver, Sender};
pub use fault::Fault;
pub use options::{LONGEST_TIMEOUT, Options, address, memory_limit};

pub(crate) use ends::verify;
