//! The C API of libibverbs and librdmacm, opened at run time.
//!
//! `cargo build` needs rustc alone: no C compiler, no libclang, no headers, no rdma-core. A program that was built runs
//! on any machine. Where rdma-core is installed, its functions are called; where it is not, each verb fails as its
//! manual page says, with errno `EOPNOTSUPP`, and [`load::ibverbs::library`] says what was tried and what to install.
//!
//! Names, arguments, return values and errno are those of C, so that the manual pages are the documentation. In the
//! root stands what a C program gets from `<infiniband/verbs.h>`, `<rdma/rdma_cma.h>` and `<rdma/rdma_verbs.h>`;
//! [`mlx5dv`] and [`efadv`] hold what two vendors add.
//!
//! | layer | what | when it runs |
//! |---|---|---|
//! | [`bindings`] | types and constants, made by bindgen from the headers | never |
//! | [`inline`] | the headers' `static inline` functions, calls through the objects themselves | on the data path |
//! | [`load`] | what a library holds: the verbs that create, change and destroy | on the control path |
//! | [`since_v44`] | what came after the release that the bindings are made from | on either |
//!
//! # Example
//!
//! ```
//! use std::ffi::CStr;
//! use rdma_mummy_sys as ffi;
//!
//! let mut count = 0;
//! // SAFETY: `count` can be written to, the list holds `count` devices, and it is freed after its last use.
//! unsafe {
//!     let list = ffi::ibv_get_device_list(&mut count);
//!     if list.is_null() {
//!         println!("{}", std::io::Error::last_os_error());
//!     } else {
//!         for index in 0..count as usize {
//!             println!("{:?}", CStr::from_ptr(ffi::ibv_get_device_name(*list.add(index))));
//!         }
//!         ffi::ibv_free_device_list(list);
//!     }
//! }
//!
//! // Why, in words: which library, every path tried with what the loader said, and what to install or set.
//! match ffi::load::ibverbs::library() {
//!     Ok(library) => println!("{:?}, rdma-core {:?}", library.path(), library.release()),
//!     Err(error) => println!("{error}"),
//! }
//! ```
//!
//! # Several providers
//!
//! A NIC in software is a table of functions, as a library is. [`load::provider::register`] adds one: its devices stand
//! in the list of `ibv_get_device_list` after those of the system, and every verb on an object goes to the provider
//! that made it.
//!
//! # Environment variables
//!
//! | variable | meaning |
//! |---|---|
//! | `RDMA_MUMMY_LIBIBVERBS` | a path or soname in place of `libibverbs.so.1`; nothing else is tried |
//! | `RDMA_MUMMY_LIBRDMACM` | the same for `librdmacm.so.1` |
//! | `RDMA_MUMMY_LIBMLX5` | the same for `libmlx5.so.1` |
//! | `RDMA_MUMMY_LIBEFA` | the same for `libefa.so.1` |
//! | `RDMA_MUMMY_RDMACM` | who serves new connections, see [`load::rdmacm::choose`] |
//!
//! # Safety
//!
//! This crate draws no line of safety of its own: what C leaves to the caller, such as the life of objects, who may use
//! one at the same time, and memory that a device writes to, is left to the caller here. It adds what C lacks: no value
//! from a library is turned into a Rust enum, a null object is refused rather than followed, a missing library or
//! function is a failure of one verb rather than of the process, and what is not a failure of C is no panic here.

pub mod bindings;
pub mod inline;
pub mod load;
pub mod since_v44;

#[doc(inline)]
pub use bindings::{rdma_cma::*, verbs::*};
pub use inline::*;
// The macros of the header stand before the functions of the library that they hide.
pub use inline::{ibv_query_port, ibv_reg_mr, ibv_reg_mr_iova};
pub use load::ibverbs::c::*;
pub use load::rdmacm::c::*;
pub use since_v44::c::*;

/// `<infiniband/mlx5dv.h>`: what mlx5 devices can do beyond verbs.
pub mod mlx5dv {
    #[doc(inline)]
    pub use crate::bindings::mlx5dv::*;
    pub use crate::inline::mlx5dv::*;
    pub use crate::load::mlx5::c::*;
}

/// `<infiniband/efadv.h>`: what EFA devices can do beyond verbs.
pub mod efadv {
    #[doc(inline)]
    pub use crate::bindings::efadv::*;
    pub use crate::inline::efadv::*;
    pub use crate::load::efa::c::*;
}

/// The example in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
