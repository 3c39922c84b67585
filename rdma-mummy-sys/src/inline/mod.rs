//! The headers' `static inline` functions, which no library exports.
//!
//! Data path functions call through pointers in the object, so run-time loading costs them nothing. Control functions
//! use the extended table before `ibv_context` ([`verbs_get_ctx`]), or the library if the header does so. Each file has
//! the functions for one kind of object, in the header's order. Names, arguments, return values and `errno` are those
//! of C:
//!
//! | file | header | contents |
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
//! | [`mlx5dv`], [`efadv`] | mlx5dv.h, efadv.h | the inline functions of two vendors |
//!
//! If the header wraps a library function in a macro of the same name (`ibv_query_port`, `ibv_reg_mr`,
//! `ibv_reg_mr_iova`), the function here does what the macro does. `__ibv_get_device_list` is missing: only static
//! linking uses it, to name the providers by `ibv_static_providers`.
//!
//! # Safety
//!
//! As in C, no pointer is checked. Objects are live: the library created them and has not destroyed them. Pointer
//! arguments are valid for the reads and writes made through them. Each function lists its additional requirements.

use core::ffi::c_int;
use core::ptr::null_mut;

use crate::load::ibverbs::c as library;

/// Returns operation `$op` of the extended table of `$context`, if the context has such a table, the table is long
/// enough, and the provider set it: the header's `verbs_get_ctx_op`. `$context` must be readable.
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

/// Stores `code` in `errno`.
fn set_errno(code: c_int) {
    // SAFETY: the C library provides every thread with an errno, at an address valid while the thread runs.
    unsafe { *libc::__errno_location() = code };
}

/// Returns the failure of a creating function that the provider lacks.
#[cold]
fn unsupported<T>() -> *mut T {
    set_errno(libc::EOPNOTSUPP);
    null_mut()
}
