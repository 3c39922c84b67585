//! Enhanced connection establishment: vendor options that the two sides exchange when they connect.

use std::mem;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_ece, rdma_cm_id};

use super::Identifier;
use crate::error::VerbError;
use crate::ibverbs::queue_pair::Ece;

impl Identifier {
    /// `rdma_set_local_ece(id, ece)` — sets the options that [`connect`](Self::connect) offers, or that
    /// [`accept`](Self::accept) confirms. Use it for queue pairs that were not created through the identifier. Such a
    /// queue pair provides the options ([`query_ece`](crate::ibverbs::queue_pair::QueuePair::query_ece),
    /// [`set_ece`](crate::ibverbs::queue_pair::QueuePair::set_ece)). For a queue pair that was created through the
    /// identifier, the library does this itself.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: a queue pair was created through the identifier, the vendor is 0, or `comp_mask` is not 0.
    /// - `EOPNOTSUPP`: librdmacm is older than rdma-core 31.
    ///
    /// # References
    ///
    /// [rdma_set_local_ece(3)](https://man7.org/linux/man-pages/man3/rdma_set_local_ece.3.html)
    #[doc(alias = "rdma_set_local_ece")]
    pub fn set_local_ece(&self, ece: Ece) -> Result<(), VerbError> {
        const VERB: &str = "rdma_set_local_ece";
        if ece.vendor_id == 0 {
            return Err(VerbError::invalid(VERB, "the vendor is 0; do not set options without a vendor"));
        }
        let mut raw = ibv_ece { vendor_id: ece.vendor_id, options: ece.options, comp_mask: ece.comp_mask };
        // SAFETY: the identifier is live, and the options are readable during the call.
        self.call(VERB, |id| unsafe { sys::rdma_set_local_ece(id, &mut raw) }).map_err(|error| {
            let no_fields = ece.comp_mask == 0;
            self.explain_ece(error, if no_fields { None } else { Some("comp_mask names unknown fields; set it to 0") })
        })
    }

    /// `rdma_get_remote_ece(id, ece)` — returns the peer's options. After a connect request, these are the options that
    /// the peer offers. After [`ConnectResponse`](super::super::EventKind::ConnectResponse), these are the options that
    /// the peer confirmed. All fields are 0 if the peer has no options, or if no options have arrived yet. Like
    /// [`set_local_ece`](Self::set_local_ece), this is for queue pairs that were not created through the identifier.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: a queue pair was created through the identifier.
    /// - `EOPNOTSUPP`: librdmacm is older than rdma-core 31.
    ///
    /// # References
    ///
    /// [rdma_get_remote_ece(3)](https://man7.org/linux/man-pages/man3/rdma_get_remote_ece.3.html)
    #[doc(alias = "rdma_get_remote_ece")]
    pub fn remote_ece(&self) -> Result<Ece, VerbError> {
        // SAFETY: all zeros are a valid value, because the struct has only integers.
        let mut raw: ibv_ece = unsafe { mem::zeroed() };
        // SAFETY: the identifier is live, and the struct is writable.
        self.call("rdma_get_remote_ece", |id| unsafe { sys::rdma_get_remote_ece(id, &mut raw) })
            .map_err(|error| self.explain_ece(error, None))?;
        Ok(raw.into())
    }

    /// `rdma_reject_ece(id, private_data, private_data_len)` — rejects a request because of the peer's options. The
    /// peer receives [`VendorOptionNotSupported`](super::super::RejectReason::VendorOptionNotSupported), and may
    /// connect again without these options.
    ///
    /// # Errors
    ///
    /// The errors are those of [`reject`](Self::reject). In addition, returns `EOPNOTSUPP` if librdmacm is older than
    /// rdma-core 31.
    ///
    /// # References
    ///
    /// [rdma_reject(3)](https://man7.org/linux/man-pages/man3/rdma_reject.3.html)
    #[doc(alias = "rdma_reject_ece")]
    pub fn reject_ece(&self, private_data: &[u8]) -> Result<(), VerbError> {
        self.reject_by("rdma_reject_ece", sys::rdma_reject_ece, private_data)
            .map_err(|error| if is_missing(&error) { too_old(error) } else { error })
    }

    #[cold]
    fn explain_ece(&self, error: VerbError, wrong: Option<&'static str>) -> VerbError {
        if is_missing(&error) {
            return too_old(error);
        }
        // SAFETY: the identifier is live and locked.
        let has_qp = self.with(|id: *mut rdma_cm_id| unsafe { !(*id).qp.is_null() });
        match (error.errno().raw(), has_qp, wrong) {
            (libc::EINVAL, true, _) => error.with_hint(
                "a queue pair was created through the identifier, so the library negotiates its options; read them \
                with QueuePair::query_ece",
            ),
            (libc::EINVAL, false, Some(wrong)) => error.with_hint(wrong),
            _ => error,
        }
    }
}

fn is_missing(error: &VerbError) -> bool {
    error.errno().raw() == libc::EOPNOTSUPP
}

#[cold]
fn too_old(error: VerbError) -> VerbError {
    error.with_hint("librdmacm is not loaded, or older than rdma-core 31; upgrade rdma-core")
}
