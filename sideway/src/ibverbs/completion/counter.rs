//! `struct ibv_comp_cntr`: a number in place of completions.

use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_comp_cntr, ibv_comp_cntr_caps, ibv_comp_cntr_init_attr, ibv_qp_attach_comp_cntr_attr};

use crate::error::VerbError;
use crate::ffi::{Handle, check_errno, check_pointer, open_enum};
use crate::ibverbs::device_context::DeviceContext;
use crate::ibverbs::queue_pair::QueuePair;

open_enum! {
    /// `enum ibv_comp_cntr_type`: what a counter counts.
    pub enum CompletionCounterType {
        /// Requests.
        WorkRequests = sys::IBV_COMP_CNTR_TYPE_WRS => "work requests",
        /// Bytes of their messages.
        Bytes = sys::IBV_COMP_CNTR_TYPE_BYTES => "bytes",
    }
}

bitflags::bitflags! {
    /// `IBV_QP_ATTACH_COMP_CNTR_OP_*`: which operations of a queue pair a counter counts.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CountedOperations: u32 {
        /// This side's sends.
        const Send = sys::IBV_QP_ATTACH_COMP_CNTR_OP_SEND;
        /// This side's receives.
        const Receive = sys::IBV_QP_ATTACH_COMP_CNTR_OP_RECV;
        /// This side's reads.
        const Read = sys::IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ;
        /// The peer's reads.
        const RemoteRdmaRead = sys::IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ;
        /// This side's writes.
        const Write = sys::IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE;
        /// The peer's writes.
        const RemoteRdmaWrite = sys::IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE;
        // Later rdma-core versions' flags pass through.
        const _ = !0;
    }
}

/// `struct ibv_comp_cntr_caps` — what completion counters of a device can do.
#[doc(alias = "ibv_comp_cntr_caps")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionCounterCapabilities {
    /// The highest value; one more is zero.
    pub max_value: u64,
    /// How many counters there can be.
    pub max_counters: u32,
    /// Which operations can be counted.
    pub supported_operations: CountedOperations,
}

/// A completion counter: two numbers, for what completed and for what failed, that the device counts up on behalf of the queue
/// pairs it is attached to. It takes the place of completions where their number is all that is wanted.
///
/// rdma-core has counters from IBVERBS_1.18 on; with an older library all of this fails with `EOPNOTSUPP`.
#[doc(alias = "ibv_comp_cntr")]
#[derive(Debug)]
pub struct CompletionCounter {
    // Dropped first: the context must outlive it.
    handle: Handle<ibv_comp_cntr>,
    context: Arc<DeviceContext>,
}

impl DeviceContext {
    /// `ibv_query_comp_cntr_caps(context, caps)` — asks what completion counters of the device can do.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: the library, the kernel or the device has none.
    #[doc(alias = "ibv_query_comp_cntr_caps")]
    pub fn query_comp_cntr_caps(&self) -> Result<CompletionCounterCapabilities, VerbError> {
        let mut caps = ibv_comp_cntr_caps::default();
        // SAFETY: the context is open as long as `self`, and `caps` may be written.
        check_errno("ibv_query_comp_cntr_caps", unsafe { sys::ibv_query_comp_cntr_caps(self.raw(), &mut caps) })?;
        Ok(CompletionCounterCapabilities {
            max_value: caps.max_value,
            max_counters: caps.max_counters,
            supported_operations: CountedOperations::from_bits_retain(caps.supported_qp_attach_ops),
        })
    }

    /// `ibv_create_comp_cntr(context, cc_attr)` — makes a counter, both of whose numbers are 0.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: the library, the kernel or the device has none, or not of this type.
    /// - `ENOMEM`: out of counters.
    #[doc(alias = "ibv_create_comp_cntr")]
    pub fn create_comp_cntr(
        self: &Arc<Self>,
        counter_type: CompletionCounterType,
    ) -> Result<Arc<CompletionCounter>, VerbError> {
        let mut attr = ibv_comp_cntr_init_attr { comp_mask: 0, type_: counter_type.raw(), flags: 0 };
        // SAFETY: the context is open as long as `self`, and the attributes are complete for a comp_mask of 0.
        let counter = unsafe { sys::ibv_create_comp_cntr(self.raw(), &mut attr) };
        let counter = check_pointer("ibv_create_comp_cntr", counter)?;
        // SAFETY: just made, ours alone, and this is its verb.
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
    /// `ibv_read_comp_cntr(comp_cntr, value)` — how much completed.
    ///
    /// # Errors
    ///
    /// The driver's errno.
    #[doc(alias = "ibv_read_comp_cntr")]
    pub fn read(&self) -> Result<u64, VerbError> {
        let mut value = 0;
        // SAFETY: the counter is live, and `value` may be written.
        check_errno("ibv_read_comp_cntr", unsafe { sys::ibv_read_comp_cntr(self.handle.as_ptr(), &mut value) })?;
        Ok(value)
    }

    /// `ibv_read_err_comp_cntr(comp_cntr, value)` — how much failed.
    ///
    /// # Errors
    ///
    /// The driver's errno.
    #[doc(alias = "ibv_read_err_comp_cntr")]
    pub fn read_err(&self) -> Result<u64, VerbError> {
        let mut value = 0;
        // SAFETY: the counter is live, and `value` may be written.
        let ret = unsafe { sys::ibv_read_err_comp_cntr(self.handle.as_ptr(), &mut value) };
        check_errno("ibv_read_err_comp_cntr", ret)?;
        Ok(value)
    }

    change! {
        /// `ibv_set_comp_cntr(comp_cntr, value)` — sets the number of what completed.
        #[doc(alias = "ibv_set_comp_cntr")]
        set = ibv_set_comp_cntr(value);
        /// `ibv_set_err_comp_cntr(comp_cntr, value)` — sets the number of what failed.
        #[doc(alias = "ibv_set_err_comp_cntr")]
        set_err = ibv_set_err_comp_cntr(value);
        /// `ibv_inc_comp_cntr(comp_cntr, amount)` — adds to the number of what completed.
        #[doc(alias = "ibv_inc_comp_cntr")]
        inc = ibv_inc_comp_cntr(amount);
        /// `ibv_inc_err_comp_cntr(comp_cntr, amount)` — adds to the number of what failed.
        #[doc(alias = "ibv_inc_err_comp_cntr")]
        inc_err = ibv_inc_err_comp_cntr(amount);
    }

    /// `ibv_qp_attach_comp_cntr(qp, comp_cntr, attr)` — has the counter count these operations of a queue pair, which is in the
    /// state `Reset` or `Init`. The counter lives as long as the queue pair then.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the queue pair is in another state, or of another device context.
    /// - `EOPNOTSUPP`: the device does not count these operations.
    #[doc(alias = "ibv_qp_attach_comp_cntr")]
    pub fn attach(self: &Arc<Self>, qp: &impl QueuePair, operations: CountedOperations) -> Result<(), VerbError> {
        const VERB: &str = "ibv_qp_attach_comp_cntr";
        let core = qp.core();
        if core.context().raw() != self.context.raw() {
            return Err(VerbError::invalid(VERB, "the queue pair is of another device context than the counter"));
        }
        let mut attr = ibv_qp_attach_comp_cntr_attr { comp_mask: 0, op_mask: operations.bits() };
        // SAFETY: both are live and of one device, and the attributes are complete for a comp_mask of 0.
        let ret = unsafe { sys::ibv_qp_attach_comp_cntr(core.raw(), self.handle.as_ptr(), &mut attr) };
        check_errno(VERB, ret).map_err(|error| match error.errno().raw() {
            libc::EINVAL => error.with_hint(format!(
                "the queue pair must be in the state Reset or Init, and is in {:?}",
                core.current_state()
            )),
            _ => error,
        })?;
        core.keep_alive(self.clone());
        Ok(())
    }

    /// `ibv_destroy_comp_cntr(comp_cntr)` — destroys the counter and reports, where dropping only logs.
    ///
    /// A counter in an `Arc` is taken out of it with [`Arc::into_inner`], which succeeds once the queue pairs that it is attached
    /// to have gone.
    ///
    /// # Errors
    ///
    /// The driver's errno; the counter is leaked then.
    #[doc(alias = "ibv_destroy_comp_cntr")]
    pub fn close(self) -> Result<(), VerbError> {
        self.handle.close()
    }

    /// The device that the counter is of.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        &self.context
    }

    /// The C object.
    ///
    /// # Safety
    ///
    /// It is used only while `self` lives, and not destroyed.
    pub unsafe fn comp_cntr(&self) -> NonNull<ibv_comp_cntr> {
        self.handle.as_non_null()
    }
}
