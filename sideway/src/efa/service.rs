//! The service of scalable reliable datagrams: what its requests look like, and its states.

use crate::ibverbs::queue_pair::{
    Offers, QueuePairAttributeMask as Mask, QueuePairState as State, QueuePairType, Service, Transition,
    standard_transition,
};
use crate::ibverbs::work_request::{Addressed, DatagramAddress, Read, Send, SendImm, Write, WriteImm};

/// Scalable reliable datagrams (SRD): each request names an address handle, a queue pair and its Q_Key.
#[doc(alias = "EFADV_QP_DRIVER_TYPE_SRD")]
#[derive(Clone, Copy, Debug)]
pub enum ScalableReliableDatagram {}

impl crate::ffi::Sealed for ScalableReliableDatagram {}

// SAFETY: only operations with an address are offered.
unsafe impl Service for ScalableReliableDatagram {
    /// Those of datagrams; on the way to ReadyToSend one can also say how often to try again where the peer has posted no
    /// receive.
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
            // SAFETY: the address is there.
            unsafe impl<const CHECKED: bool> Offers<Addressed<$Operation, DatagramAddress<'_, CHECKED>>>
                for ScalableReliableDatagram {}
        )+
    };
}

offers_with_ud_addr!(Send, SendImm, Read, Write, WriteImm);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_states_are_those_of_datagrams_with_one_attribute_more() {
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
