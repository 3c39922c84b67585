//! `struct ibv_flow_action`: what is done with packets that match.

use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::ibv_flow_action;

use super::EspAction;
use super::esp::EspStructs;
use crate::error::VerbError;
use crate::ffi::{Handle, check_errno, check_pointer};
use crate::ibverbs::device_context::DeviceContext;

const CREATE: &str = "ibv_create_flow_action_esp";
const MODIFY: &str = "ibv_modify_flow_action_esp";

/// An action of IPsec: packets that match a rule which names it are decrypted or encrypted, and go on from there. Flows that
/// name it keep it alive.
#[doc(alias = "ibv_flow_action")]
#[derive(Debug)]
pub struct FlowAction {
    // Dropped first: the context must outlive it.
    handle: Handle<ibv_flow_action>,
    context: Arc<DeviceContext>,
}

impl DeviceContext {
    /// `ibv_create_flow_action_esp(context, esp)` — makes an action that encrypts or decrypts.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: the device has no IPsec offload, or not this mode.
    /// - `EINVAL`: attributes or key are missing, or do not go together.
    ///
    /// # References
    ///
    /// [ibv_create_flow_action(3)](https://man7.org/linux/man-pages/man3/ibv_create_flow_action.3.html)
    #[doc(alias = "ibv_create_flow_action_esp")]
    pub fn create_flow_action_esp(self: &Arc<Self>, esp: &EspAction) -> Result<Arc<FlowAction>, VerbError> {
        if esp.attributes.is_none() || esp.key.is_none() {
            return Err(VerbError::invalid(CREATE, "a new action needs attributes and a key"));
        }
        let mut structs = EspStructs::from(esp);
        let mut attr = structs.attr();
        // SAFETY: the context is open as long as `self`; the structs that the attributes point to live until the end of this
        // function.
        let action = check_pointer(CREATE, unsafe { sys::ibv_create_flow_action_esp(self.raw(), &mut attr) })?;
        // SAFETY: just made and ours alone; this is its verb.
        let handle = unsafe { Handle::new(action, destroy_flow_action, "ibv_destroy_flow_action") };
        Ok(Arc::new(FlowAction { handle, context: Arc::clone(self) }))
    }
}

impl FlowAction {
    /// `ibv_modify_flow_action_esp(action, esp)` — changes the action, for all flows that name it; what is `None` stays.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: the driver does not change this: most change sequence number and its flag alone. The action stays as it
    /// was.
    ///
    /// # References
    ///
    /// [ibv_create_flow_action(3)](https://man7.org/linux/man-pages/man3/ibv_create_flow_action.3.html)
    #[doc(alias = "ibv_modify_flow_action_esp")]
    pub fn modify_esp(&self, esp: &EspAction) -> Result<(), VerbError> {
        let mut structs = EspStructs::from(esp);
        let mut attr = structs.attr();
        // SAFETY: the action is live as long as `self`; the structs that the attributes point to live until the end of this
        // function.
        check_errno(MODIFY, unsafe { sys::ibv_modify_flow_action_esp(self.handle.as_ptr(), &mut attr) })
    }

    /// `ibv_destroy_flow_action(action)` — destroys the action and reports, where dropping only logs.
    ///
    /// An action in an `Arc` is taken out of it with [`Arc::into_inner`], which succeeds once its flows have gone.
    ///
    /// # Errors
    ///
    /// The driver's errno; the action is leaked then.
    #[doc(alias = "ibv_destroy_flow_action")]
    pub fn close(self) -> Result<(), VerbError> {
        self.handle.close()
    }

    /// The device that the action is of.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        &self.context
    }

    /// The C object.
    ///
    /// # Safety
    ///
    /// It is used only while `self` lives, and not destroyed.
    pub unsafe fn flow_action(&self) -> NonNull<ibv_flow_action> {
        self.handle.as_non_null()
    }

    pub(super) fn raw(&self) -> *mut ibv_flow_action {
        self.handle.as_ptr()
    }
}

unsafe extern "C" fn destroy_flow_action(action: *mut ibv_flow_action) -> libc::c_int {
    // SAFETY: called by the handle, once, with its own object.
    unsafe { sys::ibv_destroy_flow_action(action) }
}
