//! The glue to C that every module shares: ownership, return conventions and open-world enums.

mod attachment;
mod events;
mod handle;
mod open_enum;
mod registry;
mod result;

pub(crate) use attachment::Attachment;
pub(crate) use events::{check_alive, set_nonblocking, take_event, wait_for};
pub(crate) use handle::Handle;
pub(crate) use open_enum::open_enum;
pub(crate) use registry::{Found, Registry};
pub(crate) use result::{check_errno, check_pointer, clear_errno, errno_of, last_errno};
