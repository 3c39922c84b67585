//! Handles `fork(2)`: a child process uses nothing of its parent's devices.
//!
//! At the fork, other threads of the parent may have held any lock, or may have been in the middle of any change. The
//! child therefore starts a new generation. Each generation has its own instance of every global ([`PerProcess`]) and
//! refuses contexts of earlier generations (`verbs/guard.rs`). The parent's objects stay unchanged in the child's
//! memory and are not accessed.

use std::sync::Once;

pub(crate) use rdma_mummy_sys::process::{PerProcess, generation};

use super::descriptor;

/// Starts to count generations. Each child process that is forked after this call is a new generation.
pub(crate) fn watch() {
    /// Runs in each child, on its only thread. The function must not lock or allocate.
    extern "C" fn in_child() {
        descriptor::close_all();
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        rdma_mummy_sys::process::watch();
        if !cfg!(miri) {
            // SAFETY: the handler performs only operations that are allowed between fork and exec: it writes to atomics
            // and closes descriptors. If the registration fails for lack of memory, children close none.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        }
    });
}
