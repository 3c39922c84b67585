//! The protocol of transfers: its frames, and the state machines of both sides. This module uses no I/O, clock or
//! threads.

mod batch;
mod frame;
mod names;
#[cfg(test)]
mod sim;
mod sink;
mod source;
mod stream;

pub use batch::{Batch, Frames};
pub use frame::{Entry, EntryKind, Failure, Frame, Have, Id, Peer, Purpose, ROOT, Special, Sum, Totals};
pub use names::Names;
pub use sink::{Folder, Listed, Packed, Sink};
pub use source::{Job, SMALL, Source};
pub use stream::{Kept, Step, StreamSink, StreamSource};
