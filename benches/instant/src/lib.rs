//! A device that completes each request when it is posted, as a `libibverbs.so.1`. With this library preloaded, only
//! the program's own cost remains to compare.
//!
//! The control path is that of the device of `zero_cost`. Messages are not delivered, so only writes, reads and atomics
//! can be measured. Each program has its own device, with the basic interface only. If `INSTANT_EXTENDED` is in
//! the environment, the device also offers extended queue pairs.

mod data_path;

use std::sync::Once;

use rdma_mummy_sys::load::provider::{Provider, register};

/// Registers the device on the first call of a verb.
fn ready() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the functions create, count and free objects as the manual pages describe; the absent ones fail. An error is
        // another provider of this name, and this object has none.
        let _ = unsafe { register(Provider::new("instant", data_path::table())) };
    });
}

mod ibverbs {
    rdma_mummy_exports::export!(@list ibverbs_functions, crate::ready);
}
