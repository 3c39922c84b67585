//! Who makes queue pairs: the verbs, or a connection identifier.

use std::sync::Arc;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_context, ibv_pd, ibv_qp, ibv_qp_init_attr, ibv_qp_init_attr_ex};

use crate::ffi::Attachment;

/// `ibv_create_qp`, or what does as it does.
type Create<'m> = &'m dyn Fn(*mut ibv_pd, &mut ibv_qp_init_attr) -> *mut ibv_qp;

/// `ibv_create_qp_ex`, or what does as it does.
type CreateEx<'m> = &'m dyn Fn(*mut ibv_context, &mut ibv_qp_init_attr_ex) -> *mut ibv_qp;

/// The two functions that make queue pairs, with their names for errors.
pub(crate) struct Maker<'m> {
    pub(super) verb: &'static str,
    pub(super) create: Create<'m>,
    pub(super) verb_ex: &'static str,
    pub(super) create_ex: CreateEx<'m>,
    /// What to do where a device has no extended queue pairs.
    pub(super) instead: &'static str,
    /// What has the address of queue pairs that are made so.
    pub(super) attachment: Option<Arc<dyn Attachment<ibv_qp>>>,
}

impl<'m> Maker<'m> {
    /// Functions of another library.
    ///
    /// # Safety
    ///
    /// - They do as `ibv_create_qp` and `ibv_create_qp_ex` with the attributes they are given, and change none; they may take
    ///   the queue pair out of its first state.
    /// - Where something has the queue pair's address afterwards, it is the `attachment`.
    pub(crate) unsafe fn new(
        (verb, create): (&'static str, Create<'m>),
        (verb_ex, create_ex): (&'static str, CreateEx<'m>),
        attachment: Arc<dyn Attachment<ibv_qp>>,
    ) -> Self {
        Self {
            verb,
            create,
            verb_ex,
            create_ex,
            instead: "use create_qp or create_qp_generic",
            attachment: Some(attachment),
        }
    }

    /// The verbs.
    pub(super) fn verbs() -> Maker<'static> {
        Maker {
            verb: "ibv_create_qp",
            // SAFETY: who calls it has made the attributes complete, of a live domain and live queues of its device.
            create: &|pd, attr| unsafe { sys::ibv_create_qp(pd, attr) },
            verb_ex: "ibv_create_qp_ex",
            // SAFETY: as there; they are complete for their mask.
            create_ex: &|context, attr| unsafe { sys::ibv_create_qp_ex(context, attr) },
            instead: "use build or build_generic",
            attachment: None,
        }
    }
}
