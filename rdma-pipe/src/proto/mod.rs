//! The protocol of transfers: frames, and the state machines of both sides. No I/O, clock or threads.

mod frame;
#[cfg(test)]
mod sim;
mod sink;
mod source;

pub use frame::{Entry, EntryKind, Failure, Frame, Have, Id, Peer, Purpose, ROOT, Totals};
pub use sink::Sink;
pub use source::{Job, SMALL, Source};
