//! The services of dynamic connections: their requests and their states.

use super::DcAddress;
use crate::ffi::Sealed;
use crate::ibverbs::queue_pair::{
    Offers, QueuePairAttributeMask as Mask, QueuePairState as State, QueuePairType, Service, Transition,
};
use crate::ibverbs::work_request::{
    Addressed, BindMemoryWindow, CompareSwap, FetchAdd, LocalInvalidate, Read, Send, SendImm, SendInv, Write, WriteImm,
};

/// The initiator of dynamic connections (DCI). Each request that accesses a peer has an address handle, the number of a
/// target, and the key of that target.
#[derive(Clone, Copy, Debug)]
pub enum DynamicallyConnected {}

/// The target of dynamic connections (DCT), which has no requests.
#[derive(Clone, Copy, Debug)]
pub enum DynamicallyConnectedTarget {}

impl Sealed for DynamicallyConnected {}
impl Sealed for DynamicallyConnectedTarget {}

// SAFETY: the service offers operations that access a peer only with an address. The other operations access no peer.
// The driver reads the address handle during the call.
unsafe impl Service for DynamicallyConnected {
    /// Follows the checks of the kernel's mlx5 driver.
    fn transition(_: QueuePairType, from: State, to: State) -> Option<Transition> {
        let way = Mask::PartitionKeyIndex | Mask::Port;
        let (needed, optional) = match (from, to) {
            (_, State::Reset) if is_known(from) => (Mask::empty(), Mask::empty()),
            (State::Reset, State::Init) => (way, Mask::empty()),
            (State::Init, State::Init) => (Mask::empty(), way),
            (State::Init, State::ReadyToReceive) => (Mask::PathMtu, Mask::PartitionKeyIndex | Mask::AddressVector),
            (State::ReadyToReceive, State::ReadyToSend) => (
                Mask::Timeout
                    | Mask::RetryCount
                    | Mask::ResponderNotReadyRetryCount
                    | Mask::MaxReadAtomic
                    | Mask::SendQueuePacketSequenceNumber,
                Mask::MinResponderNotReadyTimer,
            ),
            (State::ReadyToSend, State::ReadyToSend) => (Mask::empty(), Mask::MinResponderNotReadyTimer),
            (_, State::Error) if from != State::Reset && is_known(from) => (Mask::empty(), Mask::empty()),
            _ => return None,
        };
        Some(Transition { needed, optional })
    }
}

// SAFETY: the service has no requests.
unsafe impl Service for DynamicallyConnectedTarget {
    /// Follows the checks of the kernel's mlx5 driver. The device creates the target in the transition to
    /// ReadyToReceive. The target stays in this state until it is destroyed.
    fn transition(_: QueuePairType, from: State, to: State) -> Option<Transition> {
        let needed = match (from, to) {
            (State::Reset, State::Init) => Mask::PartitionKeyIndex | Mask::Port | Mask::AccessFlags,
            (State::Init, State::ReadyToReceive) => {
                Mask::MinResponderNotReadyTimer | Mask::AddressVector | Mask::PathMtu
            }
            _ => return None,
        };
        Some(Transition { needed, optional: Mask::empty() })
    }
}

fn is_known(state: State) -> bool {
    state.name().is_some() && state != State::Unknown
}

macro_rules! offers_with_dc_address {
    ($($Operation:ty),+ $(,)?) => {
        $(
            // SAFETY: the operation has an address.
            unsafe impl<const CHECKED: bool> Offers<Addressed<$Operation, DcAddress<'_, CHECKED>>> for DynamicallyConnected {}
        )+
    };
}

offers_with_dc_address!(Send, SendImm, SendInv, Write, WriteImm, Read, CompareSwap, FetchAdd);

// SAFETY: the operation accesses no peer.
unsafe impl Offers<LocalInvalidate> for DynamicallyConnected {}
// SAFETY: as above.
unsafe impl Offers<BindMemoryWindow<'_>> for DynamicallyConnected {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initiator_needs_no_peer_and_target_no_send_attributes() {
        let dci = |from, to| DynamicallyConnected::transition(QueuePairType::Driver, from, to);
        let dct = |from, to| DynamicallyConnectedTarget::transition(QueuePairType::Driver, from, to);
        assert_eq!(dci(State::Reset, State::Init).unwrap().needed, Mask::PartitionKeyIndex | Mask::Port);
        assert_eq!(dci(State::Init, State::ReadyToReceive).unwrap().needed, Mask::PathMtu);
        assert_eq!(
            dci(State::ReadyToReceive, State::ReadyToSend).unwrap().needed.to_string(),
            "Timeout, RetryCount, ResponderNotReadyRetryCount, MaxReadAtomic, SendQueuePacketSequenceNumber"
        );
        assert_eq!(dci(State::Reset, State::Error), None);
        assert!(dci(State::ReadyToSend, State::Error).is_some());
        assert_eq!(
            dct(State::Init, State::ReadyToReceive).unwrap().needed.to_string(),
            "AddressVector, PathMtu, MinResponderNotReadyTimer"
        );
        assert_eq!(dct(State::ReadyToReceive, State::ReadyToSend), None);
        for unknown in [State::Unknown, State::from_raw(77)] {
            assert_eq!(dci(unknown, State::Reset), None);
            assert_eq!(dci(unknown, State::Error), None);
            assert_eq!(dct(unknown, State::Init), None);
        }
    }
}
