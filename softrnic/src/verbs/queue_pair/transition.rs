//! The required and the optional attributes of each state transition. They follow the InfiniBand specification, volume
//! 1, section 11.2.5.2. If the specification is ambiguous, they follow the kernel.

use rdma_mummy_sys::ibv_qp_attr_mask as mask;

use crate::qp::State;
use crate::sys::errno::Errno;
use crate::wire::operation::Service;

const ACCESS: u32 = mask::IBV_QP_ACCESS_FLAGS.0;
const PKEY: u32 = mask::IBV_QP_PKEY_INDEX.0;
const PORT: u32 = mask::IBV_QP_PORT.0;
const QKEY: u32 = mask::IBV_QP_QKEY.0;
const PATH: u32 = mask::IBV_QP_AV.0;
const ALTERNATE: u32 = mask::IBV_QP_ALT_PATH.0;
const MIGRATION: u32 = mask::IBV_QP_PATH_MIG_STATE.0;
const MTU: u32 = mask::IBV_QP_PATH_MTU.0;
const DESTINATION: u32 = mask::IBV_QP_DEST_QPN.0;
const RQ_PSN: u32 = mask::IBV_QP_RQ_PSN.0;
const SQ_PSN: u32 = mask::IBV_QP_SQ_PSN.0;
const RNR_TIMER: u32 = mask::IBV_QP_MIN_RNR_TIMER.0;
const DEST_READS: u32 = mask::IBV_QP_MAX_DEST_RD_ATOMIC.0;
const READS: u32 = mask::IBV_QP_MAX_QP_RD_ATOMIC.0;
const TIMEOUT: u32 = mask::IBV_QP_TIMEOUT.0;
const RETRIES: u32 = mask::IBV_QP_RETRY_CNT.0 | mask::IBV_QP_RNR_RETRY.0;
const CURRENT: u32 = mask::IBV_QP_CUR_STATE.0;
const DRAIN_NOTIFY: u32 = mask::IBV_QP_EN_SQD_ASYNC_NOTIFY.0;

/// The attributes of one transition, as bits of `enum ibv_qp_attr_mask` without `IBV_QP_STATE`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) required: u32,
    pub(crate) optional: u32,
}

impl Rule {
    /// Returns `EINVAL` if `given` lacks a required attribute or contains one that is neither required nor optional.
    pub(crate) fn check(self, given: u32) -> Result<(), Errno> {
        let allowed = self.required | self.optional | mask::IBV_QP_STATE.0;
        if given & self.required == self.required && given & !allowed == 0 { Ok(()) } else { Err(Errno::INVALID) }
    }
}

/// The attributes that a service requires or permits in each transition.
struct Stages {
    /// The attributes that are required from RESET to INIT, and optional in a change within INIT.
    identity: u32,
    /// The rule for the transition from INIT to RTR.
    connect: Rule,
    /// The attributes that are required from RTR to RTS.
    start: u32,
    /// The attributes that are optional from RTR to RTS, and in a change within RTS.
    running: u32,
    /// The attributes that are optional from SQE to RTS.
    recover: u32,
    /// The attributes that are optional in a change within SQD.
    drained: u32,
}

/// The attributes of a sender and of a receiver.
const REQUESTER: u32 = RETRIES | READS;
const RESPONDER: u32 = RNR_TIMER | DEST_READS;

const fn stages(service: Service) -> Stages {
    const IDENTITY: u32 = PKEY | PORT | ACCESS;
    const PEER: u32 = PATH | MTU | DESTINATION | RQ_PSN;
    const PEER_OPTIONAL: u32 = ALTERNATE | ACCESS | PKEY;
    const RUNNING: u32 = CURRENT | ALTERNATE | ACCESS | MIGRATION;
    const DRAINED: u32 = PATH | ALTERNATE | ACCESS | PKEY | MIGRATION;
    match service {
        Service::UnreliableDatagram => Stages {
            identity: PKEY | PORT | QKEY,
            connect: Rule { required: 0, optional: PKEY | QKEY },
            start: SQ_PSN,
            running: CURRENT | QKEY,
            recover: CURRENT | QKEY,
            drained: PKEY | QKEY,
        },
        Service::UnreliableConnection => Stages {
            identity: IDENTITY,
            connect: Rule { required: PEER, optional: PEER_OPTIONAL },
            start: SQ_PSN,
            running: RUNNING,
            recover: CURRENT | ACCESS,
            drained: DRAINED,
        },
        // The function `rule` handles iWARP separately.
        Service::ReliableConnection | Service::Iwarp => Stages {
            identity: IDENTITY,
            connect: Rule { required: PEER | RESPONDER, optional: PEER_OPTIONAL },
            start: SQ_PSN | TIMEOUT | REQUESTER,
            running: RUNNING | RNR_TIMER,
            recover: 0,
            drained: DRAINED | PORT | TIMEOUT | REQUESTER | RESPONDER,
        },
        Service::XrcSend => Stages {
            identity: IDENTITY,
            connect: Rule { required: PEER, optional: PEER_OPTIONAL },
            start: SQ_PSN | TIMEOUT | REQUESTER,
            running: RUNNING,
            recover: 0,
            drained: DRAINED | PORT | TIMEOUT | REQUESTER,
        },
        Service::XrcReceive => Stages {
            identity: IDENTITY,
            connect: Rule { required: PEER | RESPONDER, optional: PEER_OPTIONAL },
            start: SQ_PSN | TIMEOUT,
            running: RUNNING | RNR_TIMER,
            recover: 0,
            drained: DRAINED | PORT | TIMEOUT | RESPONDER,
        },
    }
}

/// Removes the attributes that XRC QPs of this direction lack, as the kernel does (`modify_qp_mask` in uverbs_cmd.c), so
/// that programs can pass those of RC.
pub(crate) fn relevant(service: Service, given: u32) -> u32 {
    match service {
        Service::XrcSend => given & !RESPONDER,
        Service::XrcReceive => given & !REQUESTER,
        _ => given,
    }
}

/// Returns the attributes of a transition, or `None` if the transition is invalid.
pub(crate) fn rule(service: Service, from: State, to: State) -> Option<Rule> {
    if service == Service::Iwarp {
        // A program can make only these transitions of an iWARP QP. The connection manager makes the others.
        let optional = match (from, to) {
            (_, State::Reset) => 0,
            (_, State::Error) if from != State::Reset => 0,
            (State::Reset | State::Init, State::Init) => PKEY | PORT | ACCESS,
            (State::ReadyToSend, State::ReadyToSend) => CURRENT | ACCESS,
            _ => return None,
        };
        return Some(Rule { required: 0, optional });
    }
    let Stages { identity, connect, start, running, recover, drained } = stages(service);
    let (required, optional) = match (from, to) {
        (_, State::Reset) => (0, 0),
        (State::Reset, State::Init) => (identity, 0),
        (State::Reset, _) => return None,
        (_, State::Error) => (0, 0),
        (State::Init, State::Init) => (0, identity),
        (State::Init, State::ReadyToReceive) => (connect.required, connect.optional),
        (State::ReadyToReceive, State::ReadyToSend) => (start, running),
        (State::ReadyToSend | State::SendQueueDrain, State::ReadyToSend) => (0, running),
        (State::ReadyToSend, State::SendQueueDrain) => (0, DRAIN_NOTIFY),
        (State::SendQueueDrain, State::SendQueueDrain) => (0, drained),
        (State::SendQueueError, State::ReadyToSend) => (0, recover),
        _ => return None,
    };
    Some(Rule { required, optional })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICES: [Service; 5] = [
        Service::ReliableConnection,
        Service::UnreliableConnection,
        Service::UnreliableDatagram,
        Service::XrcSend,
        Service::XrcReceive,
    ];
    const STATES: [State; 7] = [
        State::Reset,
        State::Init,
        State::ReadyToReceive,
        State::ReadyToSend,
        State::SendQueueDrain,
        State::SendQueueError,
        State::Error,
    ];

    /// The table of the valid transitions has one row for each source state.
    #[test]
    fn valid_transitions_match_the_table() {
        let valid = [
            [true, true, false, false, false, false, false],
            [true, true, true, false, false, false, true],
            [true, false, false, true, false, false, true],
            [true, false, false, true, true, false, true],
            [true, false, false, true, true, false, true],
            [true, false, false, true, false, false, true],
            [true, false, false, false, false, false, true],
        ];
        for service in SERVICES {
            for (from, row) in STATES.into_iter().zip(valid) {
                for (to, is_valid) in STATES.into_iter().zip(row) {
                    assert_eq!(rule(service, from, to).is_some(), is_valid, "{service:?}: {from:?} to {to:?}");
                }
            }
        }
    }

    #[test]
    fn required_and_optional_attributes_are_disjoint() {
        for service in SERVICES {
            for from in STATES {
                for rule in STATES.into_iter().filter_map(|to| rule(service, from, to)) {
                    assert_eq!(rule.required & rule.optional, 0, "{service:?} from {from:?}");
                    assert_eq!(rule.required & CURRENT, 0, "{service:?} from {from:?}");
                }
            }
        }
    }

    #[test]
    fn transitions_of_a_reliable_connection() {
        let rule = |from, to| rule(Service::ReliableConnection, from, to).unwrap_or_default();
        assert_eq!(rule(State::Reset, State::Init).required, 0x8 | 0x10 | 0x20);
        let connect = rule(State::Init, State::ReadyToReceive);
        assert_eq!(connect.required, 0x80 | 0x100 | 0x1000 | 0x8000 | 0x20000 | 0x10_0000);
        assert_eq!(connect.optional, 0x4000 | 0x8 | 0x10);
        let start = rule(State::ReadyToReceive, State::ReadyToSend);
        assert_eq!(start.required, 0x200 | 0x400 | 0x800 | 0x10000 | 0x2000);
        assert_eq!(start.optional, 0x2 | 0x4000 | 0x8 | 0x8000 | 0x40000);
        assert_eq!(rule(State::ReadyToSend, State::Error), Rule::default());
    }

    #[test]
    fn transitions_of_a_datagram_qp() {
        let rule = |from, to| rule(Service::UnreliableDatagram, from, to).unwrap_or_default();
        assert_eq!(rule(State::Reset, State::Init).required, 0x10 | 0x20 | 0x40);
        assert_eq!(rule(State::Init, State::ReadyToReceive).required, 0);
        assert_eq!(rule(State::ReadyToReceive, State::ReadyToSend), Rule { required: 0x10000, optional: 0x2 | 0x40 });
        assert_eq!(rule(State::SendQueueError, State::ReadyToSend).optional, 0x2 | 0x40);
    }

    #[test]
    fn xrc_sides_have_their_own_attributes() {
        let required = |service, from, to| rule(service, from, to).unwrap_or_default().required;
        assert_eq!(required(Service::XrcSend, State::Init, State::ReadyToReceive) & (RNR_TIMER | DEST_READS), 0);
        assert_eq!(required(Service::XrcReceive, State::ReadyToReceive, State::ReadyToSend), SQ_PSN | TIMEOUT);
    }

    #[test]
    fn missing_and_unsupported_attributes_are_refused() {
        let rule = Rule { required: PKEY | PORT, optional: QKEY };
        assert_eq!(rule.check(PKEY | PORT), Ok(()));
        assert_eq!(rule.check(PKEY | PORT | QKEY | mask::IBV_QP_STATE.0), Ok(()));
        assert_eq!(rule.check(PKEY), Err(Errno::INVALID));
        assert_eq!(rule.check(PKEY | PORT | PATH), Err(Errno::INVALID));
        assert_eq!(rule.check(PKEY | PORT | 1 << 31), Err(Errno::INVALID));
    }

    #[test]
    fn attributes_of_rc_suit_xrc() {
        for service in [Service::XrcSend, Service::XrcReceive] {
            let stages = [
                (State::Reset, State::Init),
                (State::Init, State::ReadyToReceive),
                (State::ReadyToReceive, State::ReadyToSend),
            ];
            for (from, to) in stages {
                let of_rc =
                    rule(Service::ReliableConnection, from, to).unwrap_or_default().required | mask::IBV_QP_STATE.0;
                let own = rule(service, from, to).unwrap_or_default();
                assert_eq!(
                    own.check(relevant(service, of_rc)).map_err(|errno| errno.0),
                    Ok(()),
                    "{service:?}: {from:?}"
                );
            }
        }
    }
}
