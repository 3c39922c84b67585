//! The required and optional attributes of transitions. They follow the InfiniBand specification, volume 1, section
//! 11.2.5.2 (modify queue pair), and the manual page of `ibv_modify_qp`. If these leave a choice, the tables follow the
//! kernel's check (`ib_modify_qp_is_ok`), because the tables explain the errors of that check.

use super::QueuePairAttributeMask as Mask;
use super::QueuePairState as State;
use super::QueuePairType as Type;

/// A function that returns the attributes of a transition of a queue pair type, or `None` if there is no such
/// transition.
pub(crate) type TransitionTable = fn(Type, State, State) -> Option<Transition>;

/// The attributes of one transition of one transport service, except [`Mask::State`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The attributes that must be set.
    pub needed: Mask,
    /// The attributes that may be set.
    pub optional: Mask,
}

impl Transition {
    /// Returns the attributes that are missing from `mask`, and the attributes that `mask` must not contain.
    pub(crate) fn faults(self, mask: Mask) -> (Mask, Mask) {
        let allowed = self.needed | self.optional | Mask::State;
        (self.needed.difference(mask), mask.difference(allowed))
    }
}

/// Returns the attributes of a transition, or `None` if there is no such transition, or the transport service is
/// unknown.
pub(crate) fn standard_transition(qp_type: Type, from: State, to: State) -> Option<Transition> {
    let none = Mask::empty();
    // The services of vendors have no table in this crate. So this function finds no transitions for them.
    reset_to_init(qp_type)?;
    let (needed, optional) = match (from, to) {
        (State::Reset, State::Error) => return None,
        (_, State::Reset | State::Error) if from.name().is_some() && from != State::Unknown => (none, none),
        (State::Reset, State::Init) => (reset_to_init(qp_type)?, none),
        (State::Init, State::Init) if qp_type == Type::RawPacket => (none, none),
        (State::Init, State::Init) => (none, reset_to_init(qp_type)?),
        (State::Init, State::ReadyToReceive) => init_to_rtr(qp_type)?,
        (State::ReadyToReceive, State::ReadyToSend) => rtr_to_rts(qp_type)?,
        (State::SendQueueDrain, State::ReadyToSend | State::SendQueueDrain)
        | (State::ReadyToSend, State::SendQueueDrain)
            if qp_type == Type::RawPacket =>
        {
            (none, none)
        }
        (State::ReadyToSend | State::SendQueueDrain, State::ReadyToSend) => (none, while_running(qp_type)?),
        (State::ReadyToSend, State::SendQueueDrain) => (none, Mask::EnableSendQueueDrainedAsyncNotify),
        (State::SendQueueDrain, State::SendQueueDrain) => (none, while_drained(qp_type)?),
        (State::SendQueueError, State::ReadyToSend) => match qp_type {
            Type::UnreliableDatagram => (none, Mask::CurrentState | Mask::QueueKey),
            Type::UnreliableConnection => (none, Mask::CurrentState | Mask::AccessFlags),
            _ => (none, none),
        },
        _ => return None,
    };
    Some(Transition { needed, optional })
}

/// Returns the states that can be reached from `from`.
pub(crate) fn reachable(table: TransitionTable, qp_type: Type, from: State) -> impl Iterator<Item = State> {
    State::KNOWN.iter().copied().filter(move |&to| table(qp_type, from, to).is_some())
}

fn reset_to_init(qp_type: Type) -> Option<Mask> {
    match qp_type {
        Type::UnreliableDatagram => Some(Mask::PartitionKeyIndex | Mask::Port | Mask::QueueKey),
        Type::RawPacket => Some(Mask::Port),
        _ if is_connected(qp_type) => Some(Mask::PartitionKeyIndex | Mask::Port | Mask::AccessFlags),
        _ => None,
    }
}

fn init_to_rtr(qp_type: Type) -> Option<(Mask, Mask)> {
    let path =
        Mask::AddressVector | Mask::PathMtu | Mask::DestinationQueuePairNumber | Mask::ReceiveQueuePacketSequenceNumber;
    let optional = Mask::AlternatePath | Mask::AccessFlags | Mask::PartitionKeyIndex;
    match qp_type {
        Type::UnreliableDatagram => Some((Mask::empty(), Mask::PartitionKeyIndex | Mask::QueueKey)),
        Type::RawPacket => Some((Mask::empty(), Mask::empty())),
        _ if !is_connected(qp_type) => None,
        _ if responds(qp_type) => {
            Some((path | Mask::MaxDestinationReadAtomic | Mask::MinResponderNotReadyTimer, optional))
        }
        _ => Some((path, optional)),
    }
}

fn rtr_to_rts(qp_type: Type) -> Option<(Mask, Mask)> {
    let psn = Mask::SendQueuePacketSequenceNumber;
    let needed = match qp_type {
        Type::RawPacket => Mask::empty(),
        Type::UnreliableDatagram | Type::UnreliableConnection => psn,
        Type::ReliableConnectionExtendedRecv => psn | Mask::Timeout,
        _ => psn | Mask::Timeout | Mask::RetryCount | Mask::ResponderNotReadyRetryCount | Mask::MaxReadAtomic,
    };
    Some((needed, while_running(qp_type)?))
}

/// Returns the attributes that may be set in the transition to, or within, ReadyToSend.
fn while_running(qp_type: Type) -> Option<Mask> {
    let connected = Mask::CurrentState | Mask::AlternatePath | Mask::AccessFlags | Mask::PathMigrationState;
    match qp_type {
        Type::UnreliableDatagram => Some(Mask::CurrentState | Mask::QueueKey),
        Type::RawPacket => Some(Mask::RateLimit),
        _ if !is_connected(qp_type) => None,
        _ if responds(qp_type) => Some(connected | Mask::MinResponderNotReadyTimer),
        _ => Some(connected),
    }
}

fn while_drained(qp_type: Type) -> Option<Mask> {
    let path = Mask::AddressVector
        | Mask::AlternatePath
        | Mask::AccessFlags
        | Mask::PartitionKeyIndex
        | Mask::PathMigrationState;
    let initiator = Mask::RetryCount | Mask::ResponderNotReadyRetryCount | Mask::MaxReadAtomic;
    let responder = Mask::MaxDestinationReadAtomic | Mask::MinResponderNotReadyTimer;
    match qp_type {
        Type::UnreliableDatagram => Some(Mask::PartitionKeyIndex | Mask::QueueKey),
        Type::UnreliableConnection => Some(path),
        Type::ReliableConnection => Some(path | Mask::Port | Mask::Timeout | initiator | responder),
        Type::ReliableConnectionExtendedSend => Some(path | Mask::Port | Mask::Timeout | initiator),
        Type::ReliableConnectionExtendedRecv => Some(path | Mask::Port | Mask::Timeout | responder),
        _ => None,
    }
}

fn is_connected(qp_type: Type) -> bool {
    qp_type == Type::UnreliableConnection || responds(qp_type) || qp_type == Type::ReliableConnectionExtendedSend
}

/// Whether a queue pair of this type responds to reads and atomics of a peer.
fn responds(qp_type: Type) -> bool {
    matches!(qp_type, Type::ReliableConnection | Type::ReliableConnectionExtendedRecv)
}

#[cfg(test)]
mod table;

#[cfg(test)]
mod tests {
    use super::standard_transition as transition;
    use super::*;

    #[test]
    fn rc_attributes_match_manual_page() {
        let init = transition(Type::ReliableConnection, State::Reset, State::Init).unwrap();
        assert_eq!(init.needed, Mask::PartitionKeyIndex | Mask::Port | Mask::AccessFlags);
        let rtr = transition(Type::ReliableConnection, State::Init, State::ReadyToReceive).unwrap();
        assert_eq!(
            rtr.needed.to_string(),
            "AddressVector, PathMtu, ReceiveQueuePacketSequenceNumber, MinResponderNotReadyTimer, \
             MaxDestinationReadAtomic, DestinationQueuePairNumber"
        );
        let rts = transition(Type::ReliableConnection, State::ReadyToReceive, State::ReadyToSend).unwrap();
        assert_eq!(
            rts.needed.to_string(),
            "Timeout, RetryCount, ResponderNotReadyRetryCount, MaxReadAtomic, SendQueuePacketSequenceNumber"
        );
    }

    #[test]
    fn faults_name_missing_and_extra_attributes() {
        let rtr = transition(Type::ReliableConnection, State::Init, State::ReadyToReceive).unwrap();
        let given = (rtr.needed | Mask::State | Mask::Port).difference(Mask::PathMtu);
        assert_eq!(rtr.faults(given), (Mask::PathMtu, Mask::Port));
        assert_eq!(rtr.faults(rtr.needed | rtr.optional | Mask::State), (Mask::empty(), Mask::empty()));
    }

    #[test]
    fn reset_and_error_are_reachable_and_no_state_is_skipped() {
        for &qp_type in &[Type::ReliableConnection, Type::UnreliableConnection, Type::UnreliableDatagram] {
            for &from in State::KNOWN.iter().filter(|&&state| state != State::Unknown) {
                assert!(transition(qp_type, from, State::Reset).is_some(), "{from:?}");
                assert_eq!(transition(qp_type, from, State::Error).is_some(), from != State::Reset, "{from:?}");
            }
            assert_eq!(transition(qp_type, State::Reset, State::ReadyToReceive), None);
            assert_eq!(transition(qp_type, State::Init, State::ReadyToSend), None);
            assert_eq!(transition(qp_type, State::Error, State::ReadyToSend), None);
        }
    }

    #[test]
    fn unknown_states_and_types_have_no_transitions() {
        for raw in [7, 8, 1000, u32::MAX] {
            let state = State::from_raw(raw);
            assert_eq!(transition(Type::ReliableConnection, state, State::Init), None);
            assert_eq!(transition(Type::ReliableConnection, State::Reset, state), None);
            assert_eq!(transition(Type::ReliableConnection, state, State::Reset), None);
        }
        for qp_type in [Type::Driver, Type::from_raw(77)] {
            assert_eq!(transition(qp_type, State::Reset, State::Init), None);
            assert_eq!(reachable(transition, qp_type, State::Init).count(), 0);
        }
        assert_eq!(reachable(transition, Type::ReliableConnection, State::Unknown).count(), 0);
    }
}
