//! `struct ibv_counters`: counters of the packets and bytes that match a flow rule.
//!
//! First attach a counter at an index of the set. Then create a flow from a [`FlowRule`](super::flow::FlowRule) that
//! names the set. From then on, the set counts the packets that match the rule. (Some drivers can also attach a counter
//! to an existing flow.)
//!
//! ```no_run
//! # use sideway::ibverbs::{counters::*, flow::*, queue_pair::*};
//! # fn run(qp: &impl QueuePair, context: &std::sync::Arc<sideway::ibverbs::device_context::DeviceContext>)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! let counters = context.create_counters()?;
//! counters.attach(CounterDescription::Packets, 0)?;
//! counters.attach(CounterDescription::Bytes, 1)?;
//! let mut rule = FlowRule::new(FlowType::Normal, 1);
//! rule.setup_counters(&counters);
//! let flow = qp.create_flow(&rule)?;
//! let mut values = [0; 2];
//! counters.read(&mut values, ReadCountersFlags::empty())?;
//! println!("{} packets, {} bytes", values[0], values[1]);
//! # Ok(())
//! # }
//! ```

use std::ptr::{self, NonNull};
use std::sync::Arc;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{
    ibv_counter_attach_attr, ibv_counter_description, ibv_counters, ibv_counters_init_attr, ibv_flow,
    ibv_read_counters_flags,
};

use super::device_context::DeviceContext;
use crate::error::VerbError;
use crate::ffi::{Handle, check_errno, check_pointer, open_enum};

pub(super) const ATTACH: &str = "ibv_attach_counters_point_flow";
const READ: &str = "ibv_read_counters";

open_enum! {
    /// `enum ibv_counter_description` — the unit of a counter.
    #[doc(alias = "ibv_counter_description")]
    pub enum CounterDescription {
        /// Packets.
        Packets = ibv_counter_description::IBV_COUNTER_PACKETS.0,
        /// The length in bytes.
        Bytes = ibv_counter_description::IBV_COUNTER_BYTES.0,
    }
}

bitflags::bitflags! {
    /// `enum ibv_read_counters_flags` — how counters are read.
    #[doc(alias = "ibv_read_counters_flags")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ReadCountersFlags: u32 {
        /// Accept values that the driver has cached.
        const PreferCached = ibv_read_counters_flags::IBV_READ_COUNTERS_ATTR_PREFER_CACHED.0;
        // Unnamed bits are kept.
        const _ = !0;
    }
}

/// A set of counters. The flows that use the set keep it alive.
#[doc(alias = "ibv_counters")]
#[derive(Debug)]
pub struct Counters {
    // This is the first field, so it is dropped first, because the context must outlive it.
    handle: Handle<ibv_counters>,
    context: Arc<DeviceContext>,
}

impl DeviceContext {
    /// `ibv_create_counters(context, init_attr)` — creates an empty set of counters.
    ///
    /// # Errors
    ///
    /// Returns `EOPNOTSUPP` if the device does not support counters, and `ENOMEM` if resources are exhausted.
    ///
    /// # References
    ///
    /// [ibv_create_counters(3)](https://man7.org/linux/man-pages/man3/ibv_create_counters.3.html)
    #[doc(alias = "ibv_create_counters")]
    pub fn create_counters(self: &Arc<Self>) -> Result<Arc<Counters>, VerbError> {
        let mut attr = ibv_counters_init_attr { comp_mask: 0 };
        // SAFETY: the context is open as long as `self` lives, and the attributes can be read during the call.
        let counters =
            check_pointer("ibv_create_counters", unsafe { sys::ibv_create_counters(self.raw(), &mut attr) })?;
        // SAFETY: the object was just created and is not shared, and this verb destroys it.
        let handle = unsafe { Handle::new(counters, destroy_counters, "ibv_destroy_counters") };
        Ok(Arc::new(Counters { handle, context: Arc::clone(self) }))
    }
}

impl Counters {
    /// `ibv_attach_counters_point_flow(counters, attr, NULL)` — sets what the counter at `index` counts, for flows that
    /// are created later and name the set.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: the device does not support this counter.
    /// - `EBUSY`: a flow already uses the set.
    /// - `EINVAL`, `ENOMEM`: the index exceeds the device's limit.
    ///
    /// # References
    ///
    /// [ibv_attach_counters_point_flow(3)](https://man7.org/linux/man-pages/man3/ibv_attach_counters_point_flow.3.html)
    #[doc(alias = "ibv_attach_counters_point_flow")]
    pub fn attach(&self, what: CounterDescription, index: u32) -> Result<(), VerbError> {
        // SAFETY: null means no flow.
        unsafe { self.attach_at(what, index, ptr::null_mut()) }
    }

    /// # Safety
    ///
    /// `flow` is null, or live and belongs to this device.
    pub(super) unsafe fn attach_at(
        &self,
        what: CounterDescription,
        index: u32,
        flow: *mut ibv_flow,
    ) -> Result<(), VerbError> {
        let mut attr =
            ibv_counter_attach_attr { counter_desc: ibv_counter_description(what.raw()), index, comp_mask: 0 };
        // SAFETY: the counters are live as long as `self` lives; the caller upholds the contract for the flow.
        check_errno(ATTACH, unsafe { sys::ibv_attach_counters_point_flow(self.handle.as_ptr(), &mut attr, flow) })
    }

    /// `ibv_read_counters(counters, values, ncounters, flags)` — reads the counters 0 to `values.len() - 1`.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: `values` is shorter than the set, or no counter is attached, depending on the driver.
    /// - `EOPNOTSUPP`: an unknown flag.
    ///
    /// # References
    ///
    /// [ibv_read_counters(3)](https://man7.org/linux/man-pages/man3/ibv_read_counters.3.html)
    #[doc(alias = "ibv_read_counters")]
    pub fn read(&self, values: &mut [u64], flags: ReadCountersFlags) -> Result<(), VerbError> {
        let Ok(count) = u32::try_from(values.len()) else {
            return Err(VerbError::invalid(
                READ,
                format!(
                    "cannot read {} values: the count exceeds 32 bits; pass a \
                shorter slice",
                    values.len()
                ),
            ));
        };
        // SAFETY: the counters are live as long as `self` lives, and `values` has space for `count` numbers.
        let ret = unsafe { sys::ibv_read_counters(self.handle.as_ptr(), values.as_mut_ptr(), count, flags.bits()) };
        check_errno(READ, ret)
    }

    /// `ibv_destroy_counters(counters)` — destroys the set. This method returns an error of the verb, whereas drop only
    /// logs it.
    ///
    /// Take a set out of its `Arc` with [`Arc::into_inner`], which succeeds once its flows are dropped.
    ///
    /// # Errors
    ///
    /// The driver's errno; the set is then leaked.
    #[doc(alias = "ibv_destroy_counters")]
    pub fn close(self) -> Result<(), VerbError> {
        self.handle.close()
    }

    /// Returns the device.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        &self.context
    }

    /// Returns the C object.
    ///
    /// # Safety
    ///
    /// Use the object only while `self` lives, and do not destroy it.
    pub unsafe fn counters(&self) -> NonNull<ibv_counters> {
        self.handle.as_non_null()
    }

    pub(crate) fn raw(&self) -> *mut ibv_counters {
        self.handle.as_ptr()
    }
}

unsafe extern "C" fn destroy_counters(counters: *mut ibv_counters) -> libc::c_int {
    // SAFETY: the handle calls this function once, with its own object.
    unsafe { sys::ibv_destroy_counters(counters) }
}
