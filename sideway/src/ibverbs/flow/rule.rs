//! `struct ibv_flow_attr`: a rule under construction.

use std::sync::Arc;

use rdma_mummy_sys::{ibv_flow_attr_type, ibv_flow_flags};

use super::{FlowAction, FlowSpec, VERB};
use crate::error::VerbError;
use crate::ffi::open_enum;
use crate::ibverbs::counters::Counters;
use crate::ibverbs::device_context::DeviceContext;

open_enum! {
    /// `enum ibv_flow_attr_type` — the packets that a rule applies to.
    #[doc(alias = "ibv_flow_attr_type")]
    pub enum FlowType {
        /// The packets that match the rule's specifications.
        Normal = ibv_flow_attr_type::IBV_FLOW_ATTR_NORMAL.0,
        /// All packets of the port that no other rule matches.
        AllDefault = ibv_flow_attr_type::IBV_FLOW_ATTR_ALL_DEFAULT.0,
        /// All multicast packets of the port that no other rule matches.
        MulticastDefault = ibv_flow_attr_type::IBV_FLOW_ATTR_MC_DEFAULT.0,
        /// A copy of all packets of the port.
        Sniffer = ibv_flow_attr_type::IBV_FLOW_ATTR_SNIFFER.0,
    }
}

bitflags::bitflags! {
    /// `enum ibv_flow_flags` — how a rule is applied.
    #[doc(alias = "ibv_flow_flags")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct FlowFlags: u32 {
        /// Rules of lower priority also apply to the matching packets.
        const DontTrap = ibv_flow_flags::IBV_FLOW_ATTR_FLAGS_DONT_TRAP.0;
        /// The rule applies to sent packets.
        const Egress = ibv_flow_flags::IBV_FLOW_ATTR_FLAGS_EGRESS.0;
        // Unnamed bits are kept.
        const _ = !0;
    }
}

/// A rule under construction: a set of packets, and actions on them.
/// [`create_flow`](crate::ibverbs::queue_pair::QueuePair::create_flow) activates it; one rule can be activated many
/// times.
#[doc(alias = "ibv_flow_attr")]
#[derive(Clone, Debug)]
pub struct FlowRule {
    pub(super) flow_type: FlowType,
    pub(super) port: u8,
    pub(super) priority: u16,
    pub(super) flags: FlowFlags,
    /// Each filter, and whether it applies to the inner packet of a tunnel.
    pub(super) specs: Vec<(FlowSpec, bool)>,
    pub(super) actions: Vec<Arc<FlowAction>>,
    pub(super) counters: Vec<Arc<Counters>>,
    pub(super) drop: bool,
    pub(super) tag: Option<u32>,
}

impl FlowRule {
    /// Creates a rule for the packets of a port (counted from 1). The rule has the highest priority (0), no flags and
    /// no specifications.
    pub fn new(flow_type: FlowType, port: u8) -> Self {
        let (specs, actions, counters) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            flow_type,
            port,
            priority: 0,
            flags: FlowFlags::empty(),
            specs,
            actions,
            counters,
            drop: false,
            tag: None,
        }
    }

    /// Sets the priority. 0 is the highest priority. The order within one priority is undefined.
    pub fn setup_priority(&mut self, priority: u16) -> &mut Self {
        self.priority = priority;
        self
    }

    /// Sets how the rule is applied.
    pub fn setup_flags(&mut self, flags: FlowFlags) -> &mut Self {
        self.flags = flags;
        self
    }

    /// Adds a specification that packets must match. Add the headers from the outermost to the innermost, because
    /// drivers reject any other order.
    pub fn setup_match(&mut self, spec: FlowSpec) -> &mut Self {
        self.specs.push((spec, false));
        self
    }

    /// Adds a specification that the packet inside a tunnel must match (`IBV_FLOW_SPEC_INNER`). Add it after the
    /// headers of the tunnel.
    #[doc(alias = "IBV_FLOW_SPEC_INNER")]
    pub fn setup_inner_match(&mut self, spec: FlowSpec) -> &mut Self {
        self.specs.push((spec, true));
        self
    }

    /// `ibv_flow_spec_action_tag`: sets a number that the completions of matching packets contain. With most devices,
    /// the number has 24 bits. The completion queue must be built with
    /// [`FlowTag`](crate::ibverbs::completion::CreateCompletionQueueWorkCompletionFlags::FlowTag).
    #[doc(alias = "ibv_flow_spec_action_tag")]
    pub fn setup_tag(&mut self, tag: u32) -> &mut Self {
        self.tag = Some(tag);
        self
    }

    /// `ibv_flow_spec_action_drop`: drops matching packets.
    #[doc(alias = "ibv_flow_spec_action_drop")]
    pub fn setup_drop(&mut self) -> &mut Self {
        self.drop = true;
        self
    }

    /// `ibv_flow_spec_action_handle`: applies this action to matching packets. The flow keeps the action alive.
    #[doc(alias = "ibv_flow_spec_action_handle")]
    pub fn setup_action(&mut self, action: &Arc<FlowAction>) -> &mut Self {
        self.actions.push(Arc::clone(action));
        self
    }

    /// `ibv_flow_spec_counter_action`: counts matching packets in these counters. The flow keeps the counters alive.
    #[doc(alias = "ibv_flow_spec_counter_action")]
    pub fn setup_counters(&mut self, counters: &Arc<Counters>) -> &mut Self {
        self.counters.push(Arc::clone(counters));
        self
    }

    pub(super) fn actions(&self) -> &[Arc<FlowAction>] {
        &self.actions
    }

    pub(super) fn counters(&self) -> &[Arc<Counters>] {
        &self.counters
    }

    /// Checks that the objects that the rule names belong to this device.
    pub(super) fn check(&self, context: &DeviceContext) -> Result<(), VerbError> {
        if self.actions.iter().any(|action| action.device_context().raw() != context.raw()) {
            return Err(VerbError::invalid(
                VERB,
                "an action of the rule belongs to another device context than the queue pair; create both from one",
            ));
        }
        if self.counters.iter().any(|counters| counters.device_context().raw() != context.raw()) {
            return Err(VerbError::invalid(
                VERB,
                "counters of the rule belong to another device context than the queue pair; create both from one",
            ));
        }
        Ok(())
    }

    #[cold]
    pub(super) fn explain(&self, error: VerbError, context: &DeviceContext) -> VerbError {
        match error.errno().raw() {
            libc::EPERM => error.with_hint(
                "flow steering needs the capability CAP_NET_RAW; run `setcap \
                cap_net_raw+ep` on the program",
            ),
            libc::EOPNOTSUPP | libc::ENOSYS => {
                error.with_hint("the device or its driver does not support flow steering, or this rule")
            }
            libc::EINVAL => match context.query_device() {
                Ok(device) if self.port == 0 || u32::from(self.port) > device.phys_port_cnt() => error.with_hint(
                    format!("there is no port {}; use a port from 1 to {}", self.port, device.phys_port_cnt()),
                ),
                _ => error,
            },
            _ => error,
        }
    }
}
