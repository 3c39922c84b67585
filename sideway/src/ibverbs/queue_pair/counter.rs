//! Counting the completed operations of a queue pair.

use std::sync::Arc;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::ibv_qp_attach_comp_cntr_attr;

use super::QueuePair;
use crate::error::VerbError;
use crate::ffi::check_errno;
use crate::ibverbs::completion::{CompletionCounter, CountedOperations};

impl CompletionCounter {
    /// `ibv_qp_attach_comp_cntr(qp, comp_cntr, attr)` — counts these operations of a queue pair, which must be in the
    /// state `Reset` or `Init`. The queue pair then keeps the counter alive.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the queue pair is in another state, or belongs to another device context.
    /// - `EOPNOTSUPP`: the device does not count these operations.
    #[doc(alias = "ibv_qp_attach_comp_cntr")]
    pub fn attach(self: &Arc<Self>, qp: &impl QueuePair, operations: CountedOperations) -> Result<(), VerbError> {
        const VERB: &str = "ibv_qp_attach_comp_cntr";
        let core = qp.core();
        if core.context().raw() != self.device_context().raw() {
            return Err(VerbError::invalid(
                VERB,
                "the queue pair belongs to another device context than the counter; create both from one",
            ));
        }
        let mut attr = ibv_qp_attach_comp_cntr_attr { comp_mask: 0, op_mask: operations.bits() };
        // SAFETY: the queue pair and the counter are live and belong to one device. The attributes are initialised for
        // a comp_mask of 0.
        let ret = unsafe { sys::ibv_qp_attach_comp_cntr(core.raw(), self.handle.as_ptr(), &mut attr) };
        check_errno(VERB, ret).map_err(|error| match error.errno().raw() {
            libc::EINVAL => error.with_hint(format!(
                "the queue pair is in {:?}; attach the counter in Reset or Init",
                core.current_state()
            )),
            _ => error,
        })?;
        core.keep_alive(self.clone());
        Ok(())
    }
}
