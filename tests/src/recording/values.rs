//! What C functions take and return: arguments as numbers, and results that report a failure.

use libc::c_int;
use rdma_mummy_sys as ffi;

use super::failure::{Failure, set_errno};

/// An argument as a number: pointers as addresses.
pub(crate) trait Argument {
    fn number(self) -> u64;
}

macro_rules! numbers {
    ($($Type:ty),*) => { $(impl Argument for $Type { fn number(self) -> u64 { self as u64 } })* };
}
numbers!(bool, u8, u16, u32, u64, usize, i32);

macro_rules! enums {
    ($($Type:ident)*) => { $(impl Argument for ffi::$Type { fn number(self) -> u64 { self.0 as u64 } })* };
}
enums! {
    ib_uverbs_advise_mr_advice ib_uverbs_flow_action_esp_keymat ib_uverbs_flow_action_esp_replay ibv_counter_description
    ibv_event_type ibv_flow_attr_type ibv_mw_type ibv_node_type ibv_ops_wr_opcode ibv_port_state ibv_qp_state
    ibv_qp_type ibv_rate ibv_srq_type ibv_wc_status ibv_wq_state ibv_wq_type ibv_wr_opcode rdma_cm_event_type rdma_port_space
}

impl Argument for ffi::mlx5dv::mlx5dv_dc_type {
    fn number(self) -> u64 {
        self.0.into()
    }
}

impl<T> Argument for *mut T {
    fn number(self) -> u64 {
        self.expose_provenance() as u64
    }
}

impl<T> Argument for *const T {
    fn number(self) -> u64 {
        self.expose_provenance() as u64
    }
}

/// What a C function returns.
pub(crate) trait Answer: Sized {
    /// Whether such a call can fail.
    const CAN_FAIL: bool;

    /// The return value of a failing call.
    fn failed(verb: &str, failure: Failure) -> Self;

    /// Whether the call failed.
    fn is_failure(&self) -> bool {
        false
    }

    /// The new object, if there is one.
    fn object(&self) -> usize {
        0
    }

    /// The result, if it is a port, which a test may change.
    fn port(&mut self) -> Option<&mut u16> {
        None
    }

    /// Converts the return value of a test's own function.
    fn from_test(code: c_int) -> Self {
        unreachable!("a test's own function replaces a call that returns a number, and gave {code}")
    }
}

/// Verbs that return -1 with errno set. All functions of librdmacm do so as well.
const MINUS_ONE: [&str; 9] = [
    "close_device",
    "dm_export_dmabuf_fd",
    "get_async_event",
    "get_cq_event",
    "get_pkey_index",
    "init_ah_from_wc",
    "query_gid",
    "query_pkey",
    "rereg_mr",
];

impl Answer for c_int {
    const CAN_FAIL: bool = true;

    fn failed(verb: &str, failure: Failure) -> Self {
        match verb {
            "poll_cq" => failure.below_zero(),
            _ if verb.starts_with("rdma_") || MINUS_ONE.contains(&verb) => failure.minus(),
            _ => failure.code(),
        }
    }

    fn is_failure(&self) -> bool {
        *self != 0
    }

    fn from_test(code: c_int) -> Self {
        code
    }
}

impl<T> Answer for *mut T {
    const CAN_FAIL: bool = true;

    fn failed(_verb: &str, failure: Failure) -> Self {
        failure.null()
    }

    fn is_failure(&self) -> bool {
        self.is_null()
    }

    fn object(&self) -> usize {
        self.addr()
    }
}

/// A count, or a negative value.
impl Answer for isize {
    const CAN_FAIL: bool = true;

    fn failed(_verb: &str, failure: Failure) -> Self {
        failure.below_zero() as Self
    }

    fn is_failure(&self) -> bool {
        *self < 0
    }
}

/// A port in network byte order; zero is none.
impl Answer for u16 {
    const CAN_FAIL: bool = true;

    fn failed(_verb: &str, failure: Failure) -> Self {
        set_errno(failure.errno());
        0
    }

    fn port(&mut self) -> Option<&mut u16> {
        Some(self)
    }
}

macro_rules! cannot_fail {
    ($($Type:ty),*) => { $(
        impl Answer for $Type {
            const CAN_FAIL: bool = false;

            fn failed(verb: &str, _failure: Failure) -> Self {
                unreachable!("{verb} cannot fail")
            }
        }
    )* };
}
cannot_fail!((), u64, *const libc::c_char, ffi::ibv_rate, ffi::ibv_fork_status);

/// The name by which a C function is logged: without `ibv_`.
pub(crate) fn verb(name: &str) -> &str {
    let verb = name.trim_start_matches('_');
    verb.strip_prefix("ibv_").unwrap_or(verb)
}
