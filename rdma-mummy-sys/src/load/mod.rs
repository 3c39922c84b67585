//! Loading rdma-core's libraries at run time, and routing each call to a provider.
//!
//! This layer serves the control path: verbs that create, change and destroy. Posting and polling bypass it, because
//! they call through pointers in the objects.
//!
//! * [`ibverbs`], [`rdmacm`], [`mlx5`], [`efa`]: one library each, with its table of functions, the C functions that
//!   route a call, and `library()`, which loads it or returns the reason of the failure.
//! * [`Library`]: a library found by default, loaded from a path, or created from a table.
//! * [`provider`]: software NICs, whose devices are listed beside the system's.
//! * [`front`]: a table that a program's calls reach before any provider.

mod device_list;
pub mod efa;
mod error;
mod events;
pub(crate) mod failure;
mod fork;
pub mod front;
#[doc(hidden)]
pub mod gate;
pub mod ibverbs;
mod library;
pub mod mlx5;
pub(crate) mod objects;
mod own_object;
pub mod provider;
pub mod rdmacm;
pub(crate) mod route;
pub(crate) mod symbols;
mod union;
mod values;

pub use error::{Attempt, Known, LoadError};
pub(crate) use library::address;
pub use library::{Library, Table};
