//! Holding completion events back: one interrupt for many completions.

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_cq, ibv_cq_attr_mask, ibv_moderate_cq, ibv_modify_cq_attr};

use crate::error::VerbError;
use crate::ffi::check_errno;
use crate::ibverbs::device_context::DeviceContext;

/// `struct ibv_moderate_cq` — when an event is raised: as soon as one of the two is reached. Both zero is at once.
///
/// The device says how far it goes in
/// [`DeviceAttr::cq_mod_caps`](crate::ibverbs::device_context::DeviceAttr::cq_mod_caps).
#[doc(alias = "ibv_moderate_cq")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CompletionModeration {
    /// `cq_count`: completions for one event.
    pub count: u16,
    /// `cq_period`: microseconds from a completion to its event, at most.
    pub period_us: u16,
}

/// # Safety
///
/// `cq` is live and of `context`.
pub(super) unsafe fn modify(
    cq: *mut ibv_cq,
    context: &DeviceContext,
    moderation: CompletionModeration,
) -> Result<(), VerbError> {
    let mut attr = ibv_modify_cq_attr {
        attr_mask: ibv_cq_attr_mask::IBV_CQ_ATTR_MODERATE.0,
        moderate: ibv_moderate_cq { cq_count: moderation.count, cq_period: moderation.period_us },
    };
    // SAFETY: the queue is live, and the attributes are complete for the mask.
    let ret = unsafe { sys::ibv_modify_cq(cq, &mut attr) };
    check_errno("ibv_modify_cq", ret).map_err(|error| explain(error, context, moderation))
}

#[cold]
fn explain(error: VerbError, context: &DeviceContext, moderation: CompletionModeration) -> VerbError {
    let Ok(device) = context.query_device() else { return error };
    let caps = device.cq_mod_caps();
    let (count, period) = (caps.max_cq_count(), caps.max_cq_period());
    match error.errno().raw() {
        libc::EOPNOTSUPP | libc::ENOSYS => error.with_hint("the device or its driver does not hold events back"),
        libc::EINVAL if moderation.count > count || moderation.period_us > period => error.with_hint(format!(
            "{} completions and {} us are asked for and the device goes up to {count} and {period} us",
            moderation.count, moderation.period_us
        )),
        _ => error,
    }
}
