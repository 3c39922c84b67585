//! The protocol of transfers: frames, and the state machines of both sides. No I/O, clock or threads.

mod frame;

pub use frame::{Entry, EntryKind, Failure, Frame, Have, Id, Purpose, ROOT, Totals};
