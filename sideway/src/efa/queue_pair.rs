//! Scalable reliable datagrams: the service, and its queue pairs.

use std::mem;
use std::sync::Arc;

use rdma_mummy_sys::efadv::{self as sys, efadv_qp_init_attr};

use super::EfaDeviceCapabilityFlags as Capability;
use super::device::explain;
use crate::error::VerbError;
use crate::ibverbs::protection_domain::ProtectionDomain;
use crate::ibverbs::queue_pair::{
    ExtendedQueuePair, Offers, QueuePairAttributeMask as Mask, QueuePairBuilder, QueuePairState as State,
    QueuePairType, SendOperationFlags, Service, Transition, standard_transition,
};
use crate::ibverbs::work_request::{Addressed, DatagramAddress, Read, Send, SendImm, Write, WriteImm};

impl ProtectionDomain {
    /// Creates a builder of queue pairs for scalable reliable datagrams (SRD).
    pub fn create_srd_qp_builder(self: &Arc<Self>) -> QueuePairBuilder<ScalableReliableDatagram> {
        // SAFETY: the service's only build method is `build_srd`, which creates only SRD queue pairs.
        unsafe { QueuePairBuilder::of_service(self, &[QueuePairType::Driver]) }
    }
}

impl QueuePairBuilder<ScalableReliableDatagram> {
    /// `efadv_create_qp_ex(ibvctx, attr_ex, {EFADV_QP_DRIVER_TYPE_SRD}, inlen)` — creates a queue pair. By default the
    /// queue pair supports sends, and also reads and writes if the device supports them.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the completion queue is missing or belongs to another device, or a value exceeds the device's limit.
    /// - `EOPNOTSUPP`: the device is not an EFA device, or libefa is not installed (the hint reports which); or the
    ///   device does not support the operations.
    /// - `ENOMEM`: out of resources.
    ///
    /// # References
    ///
    /// [efadv_create_qp_ex(3)](https://man7.org/linux/man-pages/man3/efadv_create_qp_ex.3.html)
    #[doc(alias = "efadv_create_qp_ex")]
    pub fn build_srd(&self) -> Result<ExtendedQueuePair<ScalableReliableDatagram>, VerbError> {
        const VERB: &str = "efadv_create_qp_ex";
        let device = self.protection_domain().device_context();
        let mut builder = self.clone();
        if !self.has_operations() {
            builder.setup_send_ops_flags(operations(device.query_efa_device()?.device_caps()));
        }
        // SAFETY: all zeros are a valid value, because the struct has only integers.
        let mut attr: efadv_qp_init_attr = unsafe { mem::zeroed() };
        attr.driver_qp_type = sys::EFADV_QP_DRIVER_TYPE_SRD;
        let size = size_of::<efadv_qp_init_attr>() as u32;
        // SAFETY: the library creates an SRD queue pair from the attributes, in their domain and with their queues, or
        // returns null. The call passes the size of the struct to the library. Nothing is attached.
        let built = unsafe {
            builder.build_with(
                VERB,
                |context, attr_ex| sys::efadv_create_qp_ex(context, attr_ex, &mut attr, size),
                |_| Ok(()),
            )
        };
        built.map_err(|error| explain(error, device))
    }
}

/// Returns all operations that the device supports.
fn operations(capabilities: Capability) -> SendOperationFlags {
    let mut operations = SendOperationFlags::Send | SendOperationFlags::SendWithImmediate;
    if capabilities.contains(Capability::Read) {
        operations |= SendOperationFlags::Read;
    }
    if capabilities.contains(Capability::Write) {
        operations |= SendOperationFlags::Write | SendOperationFlags::WriteWithImmediate;
    }
    operations
}

/// Scalable reliable datagrams (SRD): each request has an address handle, a queue pair number and its Q_Key.
#[doc(alias = "EFADV_QP_DRIVER_TYPE_SRD")]
#[derive(Clone, Copy, Debug)]
pub enum ScalableReliableDatagram {}

impl crate::ffi::Sealed for ScalableReliableDatagram {}

// SAFETY: the service offers only operations that have an address.
unsafe impl Service for ScalableReliableDatagram {
    /// The transitions are those of datagrams. In addition, the transition to ReadyToSend accepts the retry count for a
    /// peer that has no posted receive.
    fn transition(_: QueuePairType, from: State, to: State) -> Option<Transition> {
        let mut transition = standard_transition(QueuePairType::UnreliableDatagram, from, to)?;
        if (from, to) == (State::ReadyToReceive, State::ReadyToSend) {
            transition.optional |= Mask::ResponderNotReadyRetryCount;
        }
        Some(transition)
    }
}

macro_rules! offers_with_ud_addr {
    ($($Operation:ty),+ $(,)?) => {
        $(
            // SAFETY: the operation has an address.
            unsafe impl<const CHECKED: bool> Offers<Addressed<$Operation, DatagramAddress<'_, CHECKED>>>
                for ScalableReliableDatagram {}
        )+
    };
}

offers_with_ud_addr!(Send, SendImm, Read, Write, WriteImm);

#[cfg(test)]
mod service_tests {
    use super::*;

    #[test]
    fn srd_transitions_are_datagram_transitions_with_retry_count() {
        let srd = |from, to| ScalableReliableDatagram::transition(QueuePairType::Driver, from, to);
        let ud = |from, to| standard_transition(QueuePairType::UnreliableDatagram, from, to);
        for &from in State::KNOWN {
            for &to in State::KNOWN {
                if (from, to) != (State::ReadyToReceive, State::ReadyToSend) {
                    assert_eq!(srd(from, to), ud(from, to), "{from:?} {to:?}");
                }
            }
        }
        let last = srd(State::ReadyToReceive, State::ReadyToSend).unwrap();
        assert_eq!(last.needed, Mask::SendQueuePacketSequenceNumber);
        assert_eq!(last.optional.to_string(), "CurrentState, QueueKey, ResponderNotReadyRetryCount");
    }
}
