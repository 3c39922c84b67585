//! Changing a registration.

use std::ptr;
use std::sync::Arc;

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_rereg_mr_err_code as code, ibv_rereg_mr_flags as change};

use super::MemoryRegion;
use super::register::{explain_registration, flags, memory};
use crate::error::VerbError;
use crate::ffi::{errno_of, last_errno};
use crate::ibverbs::AccessFlags;
use crate::ibverbs::protection_domain::ProtectionDomain;

const VERB: &str = "ibv_rereg_mr";

/// What is left of a region whose change failed. In each case it still has to be dropped or closed.
#[doc(alias = "ibv_rereg_mr_err_code")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SurvivingRegion {
    /// It is as it was before.
    Old,
    /// It is as asked for; what failed is giving the old memory back to children of `fork(2)`.
    New,
    /// Neither: requests must not name it any more.
    Neither,
}

/// Why a region was not changed, and what is left of it.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}; {}", left(*.region))]
pub struct ReregisterError {
    error: VerbError,
    region: SurvivingRegion,
}

crate::error::debug_is_text!(ReregisterError);

impl ReregisterError {
    /// What is left of the region.
    pub fn region(&self) -> SurvivingRegion {
        self.region
    }

    /// The verb and its errno.
    pub fn verb_error(&self) -> &VerbError {
        &self.error
    }
}

fn left(region: SurvivingRegion) -> &'static str {
    match region {
        SurvivingRegion::Old => "the region is as it was before",
        SurvivingRegion::New => "the region is as asked for, but its old memory is still kept from forked children",
        SurvivingRegion::Neither => "the region is of no use any more; drop it",
    }
}

impl From<ReregisterError> for VerbError {
    fn from(error: ReregisterError) -> Self {
        error.error
    }
}

impl MemoryRegion {
    /// `ibv_rereg_mr(mr, flags, pd, addr, length, access)` — moves the region to another domain, to other memory (address
    /// and bytes), gives it other access, or several of these; what is `None` stays. The keys may change.
    ///
    /// It takes the region for itself: one in an `Arc` is reached by [`Arc::get_mut`] while nobody else holds it.
    ///
    /// # Errors
    ///
    /// [`ReregisterError::region`] tells which registration stands. `EINVAL`: nothing is to be changed, or the domain is
    /// of another device. `EOPNOTSUPP`: the driver cannot; the region is as it was.
    ///
    /// # Safety
    ///
    /// - No request that names the region's keys is outstanding, and no window is bound to it.
    /// - What [`reg_mr`](ProtectionDomain::reg_mr) asks holds from now on for the memory and the access that the region
    ///   then has; where this fails with [`SurvivingRegion::Neither`], for both old and new until the region has gone.
    /// - Memory that the region owns ([`OwnedMemoryRegion`](super::OwnedMemoryRegion) and the like) stays with it until it
    ///   is dropped, also where it is registered no more.
    ///
    /// # References
    ///
    /// [ibv_rereg_mr(3)](https://man7.org/linux/man-pages/man3/ibv_rereg_mr.3.html)
    #[doc(alias = "ibv_rereg_mr")]
    pub unsafe fn rereg_mr(
        &mut self,
        pd: Option<&Arc<ProtectionDomain>>,
        range: Option<(usize, usize)>,
        access: Option<AccessFlags>,
    ) -> Result<(), ReregisterError> {
        let unchanged = |hint| ReregisterError { error: VerbError::invalid(VERB, hint), region: SurvivingRegion::Old };
        if self.is_null_region() {
            return Err(unchanged("the null region cannot be registered anew"));
        }
        let mut what = 0;
        if pd.is_some() {
            what |= change::IBV_REREG_MR_CHANGE_PD.0;
        }
        if range.is_some() {
            what |= change::IBV_REREG_MR_CHANGE_TRANSLATION.0;
        }
        if access.is_some() {
            what |= change::IBV_REREG_MR_CHANGE_ACCESS.0;
        }
        if what == 0 {
            return Err(unchanged("nothing is to be changed: give a domain, a range or access flags"));
        }
        if pd.is_some_and(|pd| pd.device_context().raw() != self.pd.device_context().raw()) {
            return Err(unchanged("the domain is of another device context than the region"));
        }
        let (ptr, len) = range.unwrap_or((0, 0));
        // SAFETY: the region is live and ours alone, the domain is null or live and of the same device; the memory is the
        // caller's promise.
        let ret = unsafe {
            sys::ibv_rereg_mr(
                self.raw(),
                what.cast_signed(),
                pd.map_or(ptr::null_mut(), |pd| pd.raw()),
                memory(ptr),
                len,
                access.map_or(0, flags),
            )
        };
        let failure = if ret == 0 { None } else { Some(failed(ret, len, access.unwrap_or_default())) };
        if failure.as_ref().is_none_or(|failure| failure.region == SurvivingRegion::New) {
            self.registration = self.registration.changed(range.map(|(ptr, len)| (ptr as u64, len)), access);
            if let Some(pd) = pd {
                self.pd = Arc::clone(pd);
            }
        }
        if failure.as_ref().is_some_and(|failure| failure.region == SurvivingRegion::Neither) {
            self.registration = self.registration.broken();
        }
        failure.map_or(Ok(()), Err)
    }
}

#[cold]
fn failed(ret: c_int, len: usize, access: AccessFlags) -> ReregisterError {
    // Drivers without the verb return the errno value.
    let errno = if ret > 0 { errno_of(ret) } else { last_errno() };
    let error = VerbError::new(VERB, errno);
    if matches!(errno.raw(), libc::EOPNOTSUPP | libc::ENOSYS) {
        // Nothing was tried.
        return ReregisterError { error, region: SurvivingRegion::Old };
    }
    let (region, error) = match code(ret) {
        code::IBV_REREG_MR_ERR_INPUT => (SurvivingRegion::Old, explain_registration(error, len, access)),
        code::IBV_REREG_MR_ERR_DONT_FORK_NEW => {
            (SurvivingRegion::Old, error.with_hint("the new memory could not be kept from forked children"))
        }
        code::IBV_REREG_MR_ERR_DO_FORK_OLD => {
            (SurvivingRegion::New, error.with_hint("the old memory could not be given back to forked children"))
        }
        // The codes of the command, and what no manual page lists.
        _ => (SurvivingRegion::Neither, explain_registration(error, len, access)),
    };
    ReregisterError { error, region }
}
