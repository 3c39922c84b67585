//! User events, which require RDMACM_1.4.

use rdma_mummy_sys::{rdma_cm_event_type, since_v44};

use super::Identifier;
use crate::error::VerbError;

impl Identifier {
    /// `rdma_write_cm_event(id, event, status, arg)` — appends the event [`User`](super::super::EventKind::User) to the
    /// identifier's channel. The event contains `argument`, and has the status `status`. It wakes a thread that waits
    /// on the channel. Requires RDMACM_1.4 (after rdma-core 56) and Linux 6.18.
    ///
    /// The event type is `RDMA_CM_EVENT_USER`. The library permits no other type.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: librdmacm is older than that.
    /// - `EINVAL`: the kernel is older than that.
    /// - Otherwise the errno of the library.
    ///
    /// # References
    ///
    /// [rdma_write_cm_event(3)](https://github.com/linux-rdma/rdma-core/blob/master/librdmacm/man/rdma_write_cm_event.3.in.rst)
    #[doc(alias = "rdma_write_cm_event")]
    pub fn write_cm_event(&self, status: i32, argument: u64) -> Result<(), VerbError> {
        // SAFETY: the identifier is live, and the call takes no other pointers.
        self.call("rdma_write_cm_event", |id| unsafe {
            since_v44::rdma_write_cm_event(id, rdma_cm_event_type::RDMA_CM_EVENT_USER, status, argument)
        })
        .map_err(|error| match error.errno().raw() {
            libc::EOPNOTSUPP => error.with_hint("librdmacm is older than RDMACM_1.4; upgrade rdma-core"),
            libc::EINVAL | libc::ENOSYS => error.with_hint("the kernel is older than Linux 6.18; upgrade it"),
            _ => error,
        })
    }
}
