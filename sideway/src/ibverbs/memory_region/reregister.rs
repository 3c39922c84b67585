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

/// The state of a region after a failed change. In each case it must still be dropped or closed.
#[doc(alias = "ibv_rereg_mr_err_code")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SurvivingRegion {
    /// The region is unchanged.
    Old,
    /// The region has changed as requested. Only one later step failed: making the old memory visible to children of
    /// `fork(2)` again.
    New,
    /// The region is unusable. Requests must not name it.
    Neither,
}

/// The error of changing a region. The change failed completely or partly.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}; {}", left(*.region))]
pub struct ReregisterError {
    error: VerbError,
    region: SurvivingRegion,
}

crate::error::debug_is_text!(ReregisterError);

impl ReregisterError {
    /// Returns the state of the region.
    pub fn region(&self) -> SurvivingRegion {
        self.region
    }

    /// Returns the failed verb and its errno.
    pub fn verb_error(&self) -> &VerbError {
        &self.error
    }
}

fn left(region: SurvivingRegion) -> &'static str {
    match region {
        SurvivingRegion::Old => "the region is unchanged",
        SurvivingRegion::New => {
            "the region has changed as requested, but its old memory is still hidden from \
            forked children"
        }
        SurvivingRegion::Neither => "the region is unusable; drop it",
    }
}

impl From<ReregisterError> for VerbError {
    fn from(error: ReregisterError) -> Self {
        error.error
    }
}

impl MemoryRegion {
    /// `ibv_rereg_mr(mr, flags, pd, addr, length, access)` — changes the region's domain, its memory (address and
    /// length), its access, or several of these. `None` leaves an attribute unchanged. The keys of the region may
    /// change.
    ///
    /// This method takes `&mut self`. For a region in an `Arc`, use [`Arc::get_mut`], which succeeds while the region
    /// has one owner.
    ///
    /// # Errors
    ///
    /// [`ReregisterError::region`] returns the state of the region after the error. The errno is `EINVAL` if no change
    /// was requested or the domain belongs to another device. It is `EOPNOTSUPP` if the driver does not support the
    /// verb; the region is then unchanged.
    ///
    /// # Safety
    ///
    /// - No request that names the region's keys is outstanding, and no window is bound to it.
    /// - From now on, the contract of [`reg_mr`](ProtectionDomain::reg_mr) applies to the region's new memory and
    ///   access. After an error with [`SurvivingRegion::Neither`], the contract applies to both the old and the new
    ///   memory and access until the region is dropped.
    /// - The region keeps the memory that it owns ([`OwnedMemoryRegion`](super::OwnedMemoryRegion) and others) until
    ///   the region is dropped, even if this memory is no longer registered.
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
            return Err(unchanged("the null region cannot be re-registered"));
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
            return Err(unchanged("no change was requested; pass a domain, a range or access flags"));
        }
        if pd.is_some_and(|pd| pd.device_context().raw() != self.pd.device_context().raw()) {
            return Err(unchanged(
                "the domain belongs to another device context than the region; use one of the same \
                device context",
            ));
        }
        let (ptr, len) = range.unwrap_or((0, 0));
        // SAFETY: the region is live and not shared. The domain is null, or it is live and belongs to the same device.
        // The caller upholds the contract for the memory.
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
    // A positive value is the errno itself, which drivers without the verb return.
    let errno = if ret > 0 { errno_of(ret) } else { last_errno() };
    let error = VerbError::new(VERB, errno);
    if matches!(errno.raw(), libc::EOPNOTSUPP | libc::ENOSYS) {
        // The driver has changed nothing.
        return ReregisterError { error, region: SurvivingRegion::Old };
    }
    let (region, error) = match code(ret) {
        code::IBV_REREG_MR_ERR_INPUT => (SurvivingRegion::Old, explain_registration(error, len, access)),
        code::IBV_REREG_MR_ERR_DONT_FORK_NEW => {
            (SurvivingRegion::Old, error.with_hint("the new memory could not be hidden from forked children"))
        }
        code::IBV_REREG_MR_ERR_DO_FORK_OLD => {
            (SurvivingRegion::New, error.with_hint("the old memory could not be returned to forked children"))
        }
        // These are the codes of a failed command, and the codes that the manual page does not list.
        _ => (SurvivingRegion::Neither, explain_registration(error, len, access)),
    };
    ReregisterError { error, region }
}
