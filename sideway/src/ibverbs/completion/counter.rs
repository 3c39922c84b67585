//! `struct ibv_comp_cntr`: counting completions instead of polling them.

use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_comp_cntr, ibv_comp_cntr_caps, ibv_comp_cntr_init_attr};

use crate::error::VerbError;
use crate::ffi::{Handle, check_errno, check_pointer, open_enum};
use crate::ibverbs::device_context::DeviceContext;

open_enum! {
    /// `enum ibv_comp_cntr_type`: the unit of a counter.
    pub enum CompletionCounterType {
        /// Requests.
        WorkRequests = sys::IBV_COMP_CNTR_TYPE_WRS => "work requests",
        /// Bytes of messages.
        Bytes = sys::IBV_COMP_CNTR_TYPE_BYTES => "bytes",
    }
}

bitflags::bitflags! {
    /// `IBV_QP_ATTACH_COMP_CNTR_OP_*`: the operations of a queue pair that a counter counts.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CountedOperations: u32 {
        /// Local sends.
        const Send = sys::IBV_QP_ATTACH_COMP_CNTR_OP_SEND;
        /// Local receives.
        const Receive = sys::IBV_QP_ATTACH_COMP_CNTR_OP_RECV;
        /// Local reads.
        const Read = sys::IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ;
        /// The peer's reads.
        const RemoteRdmaRead = sys::IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ;
        /// Local writes.
        const Write = sys::IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE;
        /// The peer's writes.
        const RemoteRdmaWrite = sys::IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE;
        // Unnamed bits are kept.
        const _ = !0;
    }
}

/// `struct ibv_comp_cntr_caps` — the capabilities of a device's completion counters.
#[doc(alias = "ibv_comp_cntr_caps")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionCounterCapabilities {
    /// The highest value of a counter. After this value, the counter wraps to zero.
    pub max_value: u64,
    /// The maximum number of counters.
    pub max_counters: u32,
    /// The operations that can be counted.
    pub supported_operations: CountedOperations,
}

/// A completion counter: the number of successful operations and the number of failed ones. The device increments these
/// numbers for the queue pairs that are attached to the counter. Use a counter instead of completions if only the
/// number of completions matters.
///
/// rdma-core supports counters since version IBVERBS_1.18 of its interface. With an older library, all methods fail
/// with `EOPNOTSUPP`.
#[doc(alias = "ibv_comp_cntr")]
#[derive(Debug)]
pub struct CompletionCounter {
    // This is the first field, so it is dropped first, because the context must outlive it.
    pub(in crate::ibverbs) handle: Handle<ibv_comp_cntr>,
    context: Arc<DeviceContext>,
}

impl DeviceContext {
    /// `ibv_query_comp_cntr_caps(context, caps)` — queries the capabilities of the device's completion counters.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: the library, the kernel or the device does not support counters.
    #[doc(alias = "ibv_query_comp_cntr_caps")]
    pub fn query_comp_cntr_caps(&self) -> Result<CompletionCounterCapabilities, VerbError> {
        let mut caps = ibv_comp_cntr_caps::default();
        // SAFETY: the context is open as long as `self` lives, and the call may write to `caps`.
        check_errno("ibv_query_comp_cntr_caps", unsafe { sys::ibv_query_comp_cntr_caps(self.raw(), &mut caps) })?;
        Ok(CompletionCounterCapabilities {
            max_value: caps.max_value,
            max_counters: caps.max_counters,
            supported_operations: CountedOperations::from_bits_retain(caps.supported_qp_attach_ops),
        })
    }

    /// `ibv_create_comp_cntr(context, cc_attr)` — creates a counter with both numbers 0.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: the library, the kernel or the device does not support counters, or this type.
    /// - `ENOMEM`: out of counters.
    #[doc(alias = "ibv_create_comp_cntr")]
    pub fn create_comp_cntr(
        self: &Arc<Self>,
        counter_type: CompletionCounterType,
    ) -> Result<Arc<CompletionCounter>, VerbError> {
        let mut attr = ibv_comp_cntr_init_attr { comp_mask: 0, type_: counter_type.raw(), flags: 0 };
        // SAFETY: the context is open as long as `self` lives, and the attributes are initialised for a comp_mask of 0.
        let counter = unsafe { sys::ibv_create_comp_cntr(self.raw(), &mut attr) };
        let counter = check_pointer("ibv_create_comp_cntr", counter)?;
        // SAFETY: the object was just created and is not shared, and this verb destroys it.
        let handle = unsafe { Handle::new(counter, sys::ibv_destroy_comp_cntr, "ibv_destroy_comp_cntr") };
        Ok(Arc::new(CompletionCounter { handle, context: Arc::clone(self) }))
    }
}

macro_rules! change {
    ($( $(#[$meta:meta])* $name:ident = $verb:ident($argument:ident); )+) => { $(
        $(#[$meta])*
        ///
        /// # Errors
        ///
        /// The driver's errno.
        pub fn $name(&self, $argument: u64) -> Result<(), VerbError> {
            // SAFETY: the counter is live.
            check_errno(stringify!($verb), unsafe { sys::$verb(self.handle.as_ptr(), $argument) })
        }
    )+ };
}

impl CompletionCounter {
    /// `ibv_read_comp_cntr(comp_cntr, value)` — reads the number of successful operations.
    ///
    /// # Errors
    ///
    /// The driver's errno.
    #[doc(alias = "ibv_read_comp_cntr")]
    pub fn read(&self) -> Result<u64, VerbError> {
        let mut value = 0;
        // SAFETY: the counter is live, and the call may write to `value`.
        check_errno("ibv_read_comp_cntr", unsafe { sys::ibv_read_comp_cntr(self.handle.as_ptr(), &mut value) })?;
        Ok(value)
    }

    /// `ibv_read_err_comp_cntr(comp_cntr, value)` — reads the number of failed operations.
    ///
    /// # Errors
    ///
    /// The driver's errno.
    #[doc(alias = "ibv_read_err_comp_cntr")]
    pub fn read_err(&self) -> Result<u64, VerbError> {
        let mut value = 0;
        // SAFETY: the counter is live, and the call may write to `value`.
        let ret = unsafe { sys::ibv_read_err_comp_cntr(self.handle.as_ptr(), &mut value) };
        check_errno("ibv_read_err_comp_cntr", ret)?;
        Ok(value)
    }

    change! {
        /// `ibv_set_comp_cntr(comp_cntr, value)` — sets the number of successful operations.
        #[doc(alias = "ibv_set_comp_cntr")]
        set = ibv_set_comp_cntr(value);
        /// `ibv_set_err_comp_cntr(comp_cntr, value)` — sets the number of failed operations.
        #[doc(alias = "ibv_set_err_comp_cntr")]
        set_err = ibv_set_err_comp_cntr(value);
        /// `ibv_inc_comp_cntr(comp_cntr, amount)` — adds to the number of successful operations.
        #[doc(alias = "ibv_inc_comp_cntr")]
        inc = ibv_inc_comp_cntr(amount);
        /// `ibv_inc_err_comp_cntr(comp_cntr, amount)` — adds to the number of failed operations.
        #[doc(alias = "ibv_inc_err_comp_cntr")]
        inc_err = ibv_inc_err_comp_cntr(amount);
    }

    /// `ibv_destroy_comp_cntr(comp_cntr)` — destroys the counter. This method returns an error of the verb, whereas
    /// drop only logs it.
    ///
    /// Take a counter out of its `Arc` with [`Arc::into_inner`], which succeeds once its queue pairs are dropped.
    ///
    /// # Errors
    ///
    /// The driver's errno; the counter is then leaked.
    #[doc(alias = "ibv_destroy_comp_cntr")]
    pub fn close(self) -> Result<(), VerbError> {
        self.handle.close()
    }

    /// Returns the counter's device.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        &self.context
    }

    /// Returns the C object.
    ///
    /// # Safety
    ///
    /// Use the object only while `self` lives, and do not destroy it.
    pub unsafe fn comp_cntr(&self) -> NonNull<ibv_comp_cntr> {
        self.handle.as_non_null()
    }
}
