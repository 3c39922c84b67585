//! `struct ibv_ece`: enhanced connection establishment.

use std::mem;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::ibv_ece;

use super::QueuePairCore;
use crate::error::VerbError;
use crate::ffi::check_errno;

/// Vendor options that the two sides of a connection negotiate before it is established. The first side
/// [queries](super::QueuePair::query_ece) its device's options and sends them with its address. The second side
/// [sets](super::QueuePair::set_ece) these options, and returns the options that its device accepted. The first side
/// sets the accepted options.
#[doc(alias = "ibv_ece")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ece {
    /// The vendor: an IEEE OUI, 24 bits.
    pub vendor_id: u32,
    /// The options, defined by the vendor.
    pub options: u32,
    /// The mask of fields that later versions may add. No such fields exist yet.
    pub comp_mask: u32,
}

impl QueuePairCore {
    pub(crate) fn query_ece(&self) -> Result<Ece, VerbError> {
        // SAFETY: all zeros are a valid value, because the struct has only integers.
        let mut ece: ibv_ece = unsafe { mem::zeroed() };
        // SAFETY: the queue pair is live as long as the core, and the call may write to the struct.
        let ret = self.alone(|| unsafe { sys::ibv_query_ece(self.raw(), &mut ece) });
        check_errno("ibv_query_ece", ret)?;
        Ok(ece.into())
    }

    pub(crate) fn set_ece(&self, ece: Ece) -> Result<Ece, VerbError> {
        let mut raw = ibv_ece { vendor_id: ece.vendor_id, options: ece.options, comp_mask: ece.comp_mask };
        // SAFETY: the queue pair is live as long as the core, and the struct can be read and written.
        let ret = self.alone(|| unsafe { sys::ibv_set_ece(self.raw(), &mut raw) });
        check_errno("ibv_set_ece", ret).map_err(|error| {
            if error.errno().raw() == libc::EOPNOTSUPP && ece.vendor_id == 0 {
                return error
                    .with_hint("the vendor is 0, so the side that sent these options has none; set no options");
            }
            error
        })?;
        Ok(raw.into())
    }
}

impl From<ibv_ece> for Ece {
    fn from(ece: ibv_ece) -> Self {
        Self { vendor_id: ece.vendor_id, options: ece.options, comp_mask: ece.comp_mask }
    }
}
