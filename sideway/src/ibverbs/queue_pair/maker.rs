//! The functions that create queue pairs: either the verbs or those of a connection identifier.

use std::sync::Arc;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_context, ibv_pd, ibv_qp, ibv_qp_init_attr, ibv_qp_init_attr_ex};

use crate::ffi::Attachment;

/// `ibv_create_qp`, or a function that behaves like it.
type Create<'m> = &'m dyn Fn(*mut ibv_pd, &mut ibv_qp_init_attr) -> *mut ibv_qp;

/// `ibv_create_qp_ex`, or a function that behaves like it.
type CreateEx<'m> = &'m dyn Fn(*mut ibv_context, &mut ibv_qp_init_attr_ex) -> *mut ibv_qp;

/// The two functions that create queue pairs, with their names for errors.
pub(crate) struct Maker<'m> {
    pub(super) verb: &'static str,
    pub(super) create: Create<'m>,
    pub(super) verb_ex: &'static str,
    pub(super) create_ex: CreateEx<'m>,
    /// The remedy that an error suggests on devices without extended queue pairs.
    pub(super) instead: &'static str,
    /// The C object that stores the addresses of the created queue pairs.
    pub(super) attachment: Option<Arc<dyn Attachment<ibv_qp>>>,
}

impl<'m> Maker<'m> {
    /// Creates a maker that uses functions of another library.
    ///
    /// # Safety
    ///
    /// - The functions behave like `ibv_create_qp` and `ibv_create_qp_ex` with the given attributes, and change no
    ///   attribute. The functions may move the queue pair out of its initial state.
    /// - If a C object then stores the queue pair's address, it is the `attachment`.
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

    /// Returns the maker that uses the verbs.
    pub(super) fn verbs() -> Maker<'static> {
        Maker {
            verb: "ibv_create_qp",
            // SAFETY: the caller has initialised the attributes, and they name a live domain and live queues of the
            // same device.
            create: &|pd, attr| unsafe { sys::ibv_create_qp(pd, attr) },
            verb_ex: "ibv_create_qp_ex",
            // SAFETY: as above; the attributes are initialised according to their mask.
            create_ex: &|context, attr| unsafe { sys::ibv_create_qp_ex(context, attr) },
            instead: "use build or build_generic",
            attachment: None,
        }
    }
}
