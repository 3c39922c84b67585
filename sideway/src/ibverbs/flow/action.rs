//! `struct ibv_flow_action`: actions on matching packets.

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

/// An IPsec action: the device encrypts or decrypts the packets that match a rule with this action, and then processes
/// them further. The flows that name the action keep it alive.
#[doc(alias = "ibv_flow_action")]
#[derive(Debug)]
pub struct FlowAction {
    // This is the first field, so it is dropped first, because the context must outlive it.
    handle: Handle<ibv_flow_action>,
    context: Arc<DeviceContext>,
}

impl DeviceContext {
    /// `ibv_create_flow_action_esp(context, esp)` — creates an action that encrypts or decrypts.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: the device does not support IPsec offload, or this mode.
    /// - `EINVAL`: the attributes or the key are missing, or they are inconsistent.
    ///
    /// # References
    ///
    /// [ibv_create_flow_action(3)](https://man7.org/linux/man-pages/man3/ibv_create_flow_action.3.html)
    #[doc(alias = "ibv_create_flow_action_esp")]
    pub fn create_flow_action_esp(self: &Arc<Self>, esp: &EspAction) -> Result<Arc<FlowAction>, VerbError> {
        if esp.attributes.is_none() || esp.key.is_none() {
            return Err(VerbError::invalid(CREATE, "a new action needs attributes and a key; set both"));
        }
        let mut structs = EspStructs::from(esp);
        let mut attr = structs.attr();
        // SAFETY: the context is open as long as `self` lives. The structs that the attributes point to live until the
        // end of this function.
        let action = check_pointer(CREATE, unsafe { sys::ibv_create_flow_action_esp(self.raw(), &mut attr) })?;
        // SAFETY: the object was just created and is not shared, and this verb destroys it.
        let handle = unsafe { Handle::new(action, destroy_flow_action, "ibv_destroy_flow_action") };
        Ok(Arc::new(FlowAction { handle, context: Arc::clone(self) }))
    }
}

impl FlowAction {
    /// `ibv_modify_flow_action_esp(action, esp)` — changes the action for all flows that name it. `None` leaves a value
    /// unchanged.
    ///
    /// # Errors
    ///
    /// Returns `EOPNOTSUPP` if the driver cannot change one of these values. Most drivers can change only the sequence
    /// number and its flag. The action is then unchanged.
    ///
    /// # References
    ///
    /// [ibv_create_flow_action(3)](https://man7.org/linux/man-pages/man3/ibv_create_flow_action.3.html)
    #[doc(alias = "ibv_modify_flow_action_esp")]
    pub fn modify_esp(&self, esp: &EspAction) -> Result<(), VerbError> {
        let mut structs = EspStructs::from(esp);
        let mut attr = structs.attr();
        // SAFETY: the action is live as long as `self` lives. The structs that the attributes point to live until the
        // end of this function.
        check_errno(MODIFY, unsafe { sys::ibv_modify_flow_action_esp(self.handle.as_ptr(), &mut attr) })
    }

    /// `ibv_destroy_flow_action(action)` — destroys the action. This method returns an error of the verb, whereas drop
    /// only logs it.
    ///
    /// Take an action out of its `Arc` with [`Arc::into_inner`], which succeeds once its flows are dropped.
    ///
    /// # Errors
    ///
    /// The driver's errno; the action is then leaked.
    #[doc(alias = "ibv_destroy_flow_action")]
    pub fn close(self) -> Result<(), VerbError> {
        self.handle.close()
    }

    /// Returns the action's device.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        &self.context
    }

    /// Returns the C object.
    ///
    /// # Safety
    ///
    /// Use the object only while `self` lives, and do not destroy it.
    pub unsafe fn flow_action(&self) -> NonNull<ibv_flow_action> {
        self.handle.as_non_null()
    }

    pub(super) fn raw(&self) -> *mut ibv_flow_action {
        self.handle.as_ptr()
    }
}

unsafe extern "C" fn destroy_flow_action(action: *mut ibv_flow_action) -> libc::c_int {
    // SAFETY: the handle calls this function once, with its own object.
    unsafe { sys::ibv_destroy_flow_action(action) }
}
