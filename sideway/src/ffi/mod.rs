//! The glue to C that every module shares: ownership, return conventions and open-world enums.

mod handle;
mod open_enum;
mod result;

pub(crate) use handle::Handle;
pub(crate) use open_enum::open_enum;
pub(crate) use result::{check_errno, check_pointer, errno_of, last_errno};
