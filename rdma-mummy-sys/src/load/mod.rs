//! Loading the libraries of rdma-core at run time, and choosing who serves a call.
//!
//! This is the cold layer: verbs that create, change and destroy. What posts and polls does not pass here, because
//! those are calls through pointers that the objects themselves carry.
//!
//! * [`ibverbs`], [`rdmacm`], [`mlx5`], [`efa`]: one library each, with its table of functions, the C-shaped functions
//!   that route a call, and `library()`, which loads it and explains why it did not.
//! * [`Library`]: a library, found by itself, opened from a path, or made of a table.
//! * [`provider`]: NICs in software, whose devices stand beside those of the system.

mod device_list;
pub mod efa;
mod error;
mod events;
pub(crate) mod failure;
mod fork;
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

pub use error::{Attempt, LoadError};
pub(crate) use library::address;
pub use library::{Known, Library, Table};
