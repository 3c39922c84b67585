//! `struct ibv_qp_rate_limit_attr`: packet pacing.

use rdma_mummy_sys as sys;
use rdma_mummy_sys::ibv_qp_rate_limit_attr;

use super::{QueuePairCore, QueuePairState};
use crate::error::VerbError;
use crate::ffi::check_errno;

const VERB: &str = "ibv_modify_qp_rate_limit";

/// The limits of a queue pair's send rate.
#[doc(alias = "ibv_qp_rate_limit_attr")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RateLimit {
    /// The maximum rate in kbit/s, or 0 for no limit.
    pub rate_kbps: u32,
    /// The maximum burst above the rate, in bytes, or 0 for the device's default.
    pub max_burst_bytes: u32,
    /// The typical packet size in bytes, which helps the device to pace packets, or 0 if it is unknown.
    pub typical_packet_bytes: u16,
}

impl QueuePairCore {
    pub(crate) fn modify_rate_limit(&self, limit: &RateLimit) -> Result<(), VerbError> {
        let mut attr = ibv_qp_rate_limit_attr {
            rate_limit: limit.rate_kbps,
            max_burst_sz: limit.max_burst_bytes,
            typical_pkt_sz: limit.typical_packet_bytes,
            comp_mask: 0,
        };
        // SAFETY: the queue pair is live as long as the core, and the attributes can be read during the call.
        let ret = self.alone(|| unsafe { sys::ibv_modify_qp_rate_limit(self.raw(), &mut attr) });
        check_errno(VERB, ret).map_err(|error| self.explain_rate_limit(error, limit))
    }

    #[cold]
    fn explain_rate_limit(&self, error: VerbError, limit: &RateLimit) -> VerbError {
        if error.errno().raw() != libc::EINVAL {
            return error;
        }
        let state = self.current_state();
        if state != QueuePairState::ReadyToSend {
            return error.with_hint(format!("the queue pair is in {state:?}; move it to ReadyToSend first"));
        }
        let Ok(device) = self.context().query_device() else { return error };
        let (least, most) =
            (device.packet_pacing_caps().qp_rate_limit_min(), device.packet_pacing_caps().qp_rate_limit_max());
        if limit.rate_kbps != 0 && most != 0 && !(least..=most).contains(&limit.rate_kbps) {
            return error.with_hint(format!(
                "{} kbit/s are outside the device's range; use {least} to {most}",
                limit.rate_kbps
            ));
        }
        error
    }
}
