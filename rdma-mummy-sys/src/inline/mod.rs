//! The headers' `static inline` functions: the part of the C API that no library holds.
//!
//! Data path functions call through pointers that lie in the object, so a loaded library costs them nothing. Control
//! functions ask the extended table in front of `ibv_context` ([`verbs_get_ctx`]) and fall back on the library where
//! the header does. A file holds one noun, its functions in the header's order; names, arguments, return values and
//! `errno` are those of the C functions:
//!
//! | file | header | what |
//! |---|---|---|
//! | `send_wr` | verbs.h | `ibv_wr_*`: posting through an extended queue pair |
//! | `completion` | verbs.h | `ibv_start_poll`, `ibv_wc_read_*`: polling an extended completion queue |
//! | `context` | verbs.h | the extended table; `ibv_query_device_ex`, `ibv_query_rt_values_ex`, `ibv_query_port` |
//! | `address` | verbs.h, ib.h | GIDs and flow labels; `ib_addr_*` |
//! | `flow`, `counters` | verbs.h | flow rules and actions; counters |
//! | `domain` | verbs.h | XRC domains; thread and parent domains |
//! | `memory`, `window`, `dm` | verbs.h | memory regions; memory windows; device memory |
//! | `cq`, `qp`, `srq`, `wq` | verbs.h | the queues: creation, `ibv_poll_cq`, `ibv_post_send`, `ibv_post_recv` |
//! | `rdma_verbs`, `rdma_cma` | rdma_verbs.h, rdma_cma.h | `rdma_post_*`, `rdma_reg_*`; the addresses of an identifier |
//! | [`mlx5dv`], [`efadv`] | mlx5dv.h, efadv.h | the inlines of two vendors |
//!
//! Where the header hides a function of the library behind a macro of the same name (`ibv_query_port`, `ibv_reg_mr`,
//! `ibv_reg_mr_iova`), the function here is the macro. Left out is what only a static link of libibverbs uses:
//! `__ibv_get_device_list`, which names the providers to the linker by `ibv_static_providers`.
//!
//! # Safety
//!
//! As in C, no pointer is checked. Objects are live: the library made them and has not destroyed them. What is read
//! or written through a pointer argument is valid for that. Each function adds what is particular to it.

use core::ffi::c_int;
use core::ptr::null_mut;

use crate::load::ibverbs::c as library;

/// The operation `$op` of the extended table of `$context`, if the context has such a table, the table reaches that
/// far, and the provider filled it in: the header's `verbs_get_ctx_op`. To be used where `$context` may be read.
macro_rules! extended_op {
    ($context:expr, $op:ident) => {{
        let table = $crate::inline::verbs_get_ctx($context);
        if table.is_null() || (*table).sz < size_of::<verbs_context>() - core::mem::offset_of!(verbs_context, $op) {
            None
        } else {
            (*table).$op
        }
    }};
}

mod address;
mod completion;
mod context;
mod counters;
mod cq;
mod dm;
mod domain;
pub mod efadv;
mod flow;
mod memory;
pub mod mlx5dv;
mod qp;
mod rdma_cma;
mod rdma_verbs;
mod send_wr;
mod srq;
mod window;
mod wq;

pub use address::*;
pub use completion::*;
pub use context::*;
pub use counters::*;
pub use cq::*;
pub use dm::*;
pub use domain::*;
pub use flow::*;
pub use memory::*;
pub use qp::*;
pub use rdma_cma::*;
pub use rdma_verbs::*;
pub use send_wr::*;
pub use srq::*;
pub use window::*;
pub use wq::*;

/// Leaves `code` in `errno`.
fn set_errno(code: c_int) {
    // SAFETY: the C library gives every thread an errno, at an address that is valid as long as the thread runs.
    unsafe { *libc::__errno_location() = code };
}

/// How a function that creates something says that the provider cannot.
#[cold]
fn unsupported<T>() -> *mut T {
    set_errno(libc::EOPNOTSUPP);
    null_mut()
}
