//! Flow steering: rules that direct packets to a queue pair.
//!
//! ```text
//! FlowRule ── setup_match(FlowSpec) ── setup_tag, setup_drop, setup_action, setup_counters
//!     │
//!     └─ queue_pair.create_flow(&rule) ──► Flow          ibv_create_flow; packets arrive as long as it lives
//! DeviceContext::create_flow_action_esp ─► FlowAction    ibv_create_flow_action_esp
//! ```
//!
//! Values and masks have natural types, in host order. A packet matches a filter if it equals the value in all bits
//! that are set in the mask.
//!
//! ```no_run
//! use sideway::ibverbs::flow::{FlowRule, FlowSpec, FlowType, TcpUdpFilter};
//! # fn run(qp: &impl sideway::ibverbs::queue_pair::QueuePair) -> Result<(), sideway::error::VerbError> {
//! let mut rule = FlowRule::new(FlowType::Normal, 1);
//! rule.setup_match(FlowSpec::Udp {
//!     value: TcpUdpFilter { dst_port: 319, ..Default::default() },
//!     mask: TcpUdpFilter { dst_port: u16::MAX, ..Default::default() },
//! });
//! let flow = qp.create_flow(&rule)?;
//! # Ok(())
//! # }
//! ```

mod action;
mod encode;
mod esp;
mod filter;
mod rule;

use std::any::Any;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_flow, ibv_qp};

pub use self::action::FlowAction;
pub use self::esp::{AesGcmKey, EspAction, EspAttributes, EspFlags, EspHeader, IvAlgorithm, ParseKeyError};
pub use self::filter::{
    EspFilter, EthernetFilter, FlowSpec, GreFilter, Ipv4ExtFilter, Ipv4Filter, Ipv6Filter, MplsFilter, TcpUdpFilter,
    TunnelFilter,
};
pub use self::rule::{FlowFlags, FlowRule, FlowType};
use super::counters::{ATTACH, CounterDescription, Counters};
use super::device_context::DeviceContext;
use crate::error::VerbError;
use crate::ffi::{Handle, check_pointer};

const VERB: &str = "ibv_create_flow";

/// An active rule. The device directs matching packets to the queue pair until the flow is dropped or closed.
#[doc(alias = "ibv_flow")]
#[derive(Debug)]
pub struct Flow {
    // This is the first field, so it is dropped first, because its parents must outlive it.
    handle: Handle<ibv_flow>,
    #[expect(dead_code, reason = "held only while the flow lives")]
    actions: Vec<Arc<FlowAction>>,
    counters: Mutex<Vec<Arc<Counters>>>,
    #[expect(dead_code, reason = "held only while the flow lives")]
    qp: Arc<dyn Any + Send + Sync>,
    context: Arc<DeviceContext>,
}

impl Flow {
    /// `ibv_create_flow(qp, flow)` — creates a flow that keeps `owner`, the owner of the queue pair, alive.
    ///
    /// # Safety
    ///
    /// `qp` is live as long as `owner` lives, and belongs to `context`.
    pub(super) unsafe fn create(
        qp: *mut ibv_qp,
        owner: Arc<dyn Any + Send + Sync>,
        context: &Arc<DeviceContext>,
        rule: &FlowRule,
    ) -> Result<Self, VerbError> {
        rule.check(context)?;
        let mut attributes = rule.encode()?;
        // SAFETY: the queue pair is live. The attributes are followed by the number of specifications that they state,
        // each with its exact size. The objects that the specifications name are live and belong to this device
        // (`check`).
        let flow = unsafe { sys::ibv_create_flow(qp, attributes.as_mut_ptr()) };
        let flow = check_pointer(VERB, flow).map_err(|error| rule.explain(error, context))?;
        // SAFETY: the object was just created and is not shared, and this verb destroys it.
        let handle = unsafe { Handle::new(flow, destroy_flow, "ibv_destroy_flow") };
        let counters = Mutex::new(rule.counters().to_vec());
        Ok(Self { handle, actions: rule.actions().to_vec(), counters, qp: owner, context: Arc::clone(context) })
    }

    /// `ibv_destroy_flow(flow)` — removes the rule from the device. This method returns an error of the verb, whereas
    /// drop only logs it.
    ///
    /// # Errors
    ///
    /// The driver's errno; the flow is then leaked.
    #[doc(alias = "ibv_destroy_flow")]
    pub fn close(self) -> Result<(), VerbError> {
        self.handle.close()
    }

    /// Returns the C object.
    ///
    /// # Safety
    ///
    /// Use the object only while `self` lives, and do not destroy it.
    pub unsafe fn flow(&self) -> NonNull<ibv_flow> {
        self.handle.as_non_null()
    }

    pub(crate) fn raw(&self) -> *mut ibv_flow {
        self.handle.as_ptr()
    }

    pub(crate) fn context(&self) -> &Arc<DeviceContext> {
        &self.context
    }

    /// Keeps counters alive that were attached after the flow was created.
    pub(crate) fn keep(&self, counters: &Arc<Counters>) {
        // While the lock is held, only a failed allocation can panic. So a poisoned list is still consistent.
        self.counters.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(counters));
    }
}

impl Counters {
    /// `ibv_attach_counters_point_flow(counters, attr, flow)` — sets what the counter at `index` counts for an existing
    /// flow. The flow keeps the set alive.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: the driver supports only flows that name the set when they are created. Use
    ///   [`attach`](Self::attach) and [`FlowRule::setup_counters`] instead.
    /// - `EINVAL`: the flow belongs to another device context.
    ///
    /// # References
    ///
    /// [ibv_attach_counters_point_flow(3)](https://man7.org/linux/man-pages/man3/ibv_attach_counters_point_flow.3.html)
    pub fn attach_to_flow(
        self: &Arc<Self>,
        what: CounterDescription,
        index: u32,
        flow: &Flow,
    ) -> Result<(), VerbError> {
        if flow.context().raw() != self.device_context().raw() {
            return Err(VerbError::invalid(
                ATTACH,
                "the flow belongs to another device context than the counters; \
                create both from one",
            ));
        }
        // SAFETY: the flow is live as long as it is borrowed, and belongs to this device.
        unsafe { self.attach_at(what, index, flow.raw()) }?;
        flow.keep(self);
        Ok(())
    }
}

unsafe extern "C" fn destroy_flow(flow: *mut ibv_flow) -> libc::c_int {
    // SAFETY: the handle calls this function once, with its own object.
    unsafe { sys::ibv_destroy_flow(flow) }
}
