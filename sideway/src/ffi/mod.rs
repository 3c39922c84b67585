//! The glue to C that every module shares.
//!
//! | what | where |
//! |---|---|
//! | a C object with the verb that destroys it | [`Handle`] |
//! | how verbs say that they failed | `result` |
//! | enums that keep values without a name | [`open_enum`] |
//! | waiting for a descriptor, and taking an event from it | `events` |
//! | which Rust object a C object that an event names is of | [`Registry`] |
//! | what traits that only this crate implements have as their supertrait | [`Sealed`] |
//! | what else has the address of a C object, and forgets it first | [`Attachment`] |

mod events;
mod handle;
mod open_enum;
mod registry;
mod result;

pub(crate) use events::{check_alive, set_nonblocking, take_event, wait_for};
pub(crate) use handle::{Attachment, Handle};
pub(crate) use open_enum::open_enum;
pub(crate) use registry::{Found, Registry};
pub(crate) use result::{check_errno, check_pointer, clear_errno, errno_of, last_errno};

/// The supertrait of traits that only this crate implements: it cannot be named elsewhere.
pub trait Sealed {}
