//! The C glue shared by all modules.
//!
//! | purpose | item |
//! |---|---|
//! | a C object with the verb that destroys it | [`Handle`] |
//! | how verbs report failure | `result` |
//! | enums that keep unnamed values | [`open_enum`] |
//! | waiting for a descriptor, and taking events from it | `events` |
//! | finding the Rust object for the C object that an event names | [`Registry`] |
//! | the supertrait that seals traits | [`Sealed`] |
//! | a C object that stores the address of another object | [`Attachment`] |

mod events;
mod handle;
mod open_enum;
mod registry;
mod result;

pub(crate) use events::{check_alive, set_nonblocking, take_event, wait_for, wait_readable};
pub(crate) use handle::{Attachment, Handle};
pub(crate) use open_enum::open_enum;
pub(crate) use registry::{Found, Registry};
pub(crate) use result::{check_errno, check_pointer, clear_errno, errno_of, last_errno};

/// The supertrait of sealed traits: other crates cannot name it.
pub trait Sealed {}
