//! Which attributes a change of state needs and takes: InfiniBand specification, volume 1, section 11.2.5.2, with the kernel's
//! reading of it where that leaves room.

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

/// What one change of state needs and takes, in bits of `enum ibv_qp_attr_mask`, `IBV_QP_STATE` aside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) needed: u32,
    pub(crate) optional: u32,
}

impl Rule {
    /// `EINVAL` where something is missing from what is given, or there is too much.
    pub(crate) fn check(self, given: u32) -> Result<(), Errno> {
        let allowed = self.needed | self.optional | mask::IBV_QP_STATE.0;
        if given & self.needed == self.needed && given & !allowed == 0 { Ok(()) } else { Err(Errno::INVALID) }
    }
}

/// What a service has at each stage.
struct Stages {
    /// RESET to INIT needs it; within INIT it may be changed.
    identity: u32,
    /// INIT to RTR.
    connect: Rule,
    /// RTR to RTS needs it.
    start: u32,
    /// May be changed on the way to RTS, and in it.
    running: u32,
    /// SQE to RTS.
    recover: u32,
    /// Within SQD.
    drained: u32,
}

const fn stages(service: Service) -> Stages {
    const IDENTITY: u32 = PKEY | PORT | ACCESS;
    const PEER: u32 = PATH | MTU | DESTINATION | RQ_PSN;
    const PEER_TOO: u32 = ALTERNATE | ACCESS | PKEY;
    const RUNNING: u32 = CURRENT | ALTERNATE | ACCESS | MIGRATION;
    const DRAINED: u32 = PATH | ALTERNATE | ACCESS | PKEY | MIGRATION;
    const REQUESTER: u32 = RETRIES | READS;
    const RESPONDER: u32 = RNR_TIMER | DEST_READS;
    match service {
        Service::UnreliableDatagram => Stages {
            identity: PKEY | PORT | QKEY,
            connect: Rule { needed: 0, optional: PKEY | QKEY },
            start: SQ_PSN,
            running: CURRENT | QKEY,
            recover: CURRENT | QKEY,
            drained: PKEY | QKEY,
        },
        Service::UnreliableConnection => Stages {
            identity: IDENTITY,
            connect: Rule { needed: PEER, optional: PEER_TOO },
            start: SQ_PSN,
            running: RUNNING,
            recover: CURRENT | ACCESS,
            drained: DRAINED,
        },
        Service::ReliableConnection => Stages {
            identity: IDENTITY,
            connect: Rule { needed: PEER | RESPONDER, optional: PEER_TOO },
            start: SQ_PSN | TIMEOUT | REQUESTER,
            running: RUNNING | RNR_TIMER,
            recover: 0,
            drained: DRAINED | PORT | TIMEOUT | REQUESTER | RESPONDER,
        },
        Service::XrcSend => Stages {
            identity: IDENTITY,
            connect: Rule { needed: PEER, optional: PEER_TOO },
            start: SQ_PSN | TIMEOUT | REQUESTER,
            running: RUNNING,
            recover: 0,
            drained: DRAINED | PORT | TIMEOUT | REQUESTER,
        },
        Service::XrcReceive => Stages {
            identity: IDENTITY,
            connect: Rule { needed: PEER | RESPONDER, optional: PEER_TOO },
            start: SQ_PSN | TIMEOUT,
            running: RUNNING | RNR_TIMER,
            recover: 0,
            drained: DRAINED | PORT | TIMEOUT | RESPONDER,
        },
    }
}

/// What moving a queue pair from one state to another needs and takes; `None` where there is no such way.
pub(crate) fn rule(service: Service, from: State, to: State) -> Option<Rule> {
    let Stages { identity, connect, start, running, recover, drained } = stages(service);
    let (needed, optional) = match (from, to) {
        (_, State::Reset) => (0, 0),
        (State::Reset, State::Init) => (identity, 0),
        (State::Reset, _) => return None,
        (_, State::Error) => (0, 0),
        (State::Init, State::Init) => (0, identity),
        (State::Init, State::ReadyToReceive) => (connect.needed, connect.optional),
        (State::ReadyToReceive, State::ReadyToSend) => (start, running),
        (State::ReadyToSend | State::SendQueueDrain, State::ReadyToSend) => (0, running),
        (State::ReadyToSend, State::SendQueueDrain) => (0, DRAIN_NOTIFY),
        (State::SendQueueDrain, State::SendQueueDrain) => (0, drained),
        (State::SendQueueError, State::ReadyToSend) => (0, recover),
        _ => return None,
    };
    Some(Rule { needed, optional })
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

    /// Which states lead where, row by row.
    #[test]
    fn every_pair_of_states_has_its_answer() {
        let ways = [
            [true, true, false, false, false, false, false],
            [true, true, true, false, false, false, true],
            [true, false, false, true, false, false, true],
            [true, false, false, true, true, false, true],
            [true, false, false, true, true, false, true],
            [true, false, false, true, false, false, true],
            [true, false, false, false, false, false, true],
        ];
        for service in SERVICES {
            for (from, row) in STATES.into_iter().zip(ways) {
                for (to, is_way) in STATES.into_iter().zip(row) {
                    assert_eq!(rule(service, from, to).is_some(), is_way, "{service:?}: {from:?} to {to:?}");
                }
            }
        }
    }

    #[test]
    fn nothing_is_both_needed_and_optional_and_the_current_state_is_never_needed() {
        for service in SERVICES {
            for from in STATES {
                for rule in STATES.into_iter().filter_map(|to| rule(service, from, to)) {
                    assert_eq!(rule.needed & rule.optional, 0, "{service:?} from {from:?}");
                    assert_eq!(rule.needed & CURRENT, 0, "{service:?} from {from:?}");
                }
            }
        }
    }

    #[test]
    fn the_life_of_a_reliable_connection() {
        let rule = |from, to| rule(Service::ReliableConnection, from, to).unwrap_or_default();
        assert_eq!(rule(State::Reset, State::Init).needed, 0x8 | 0x10 | 0x20);
        let connect = rule(State::Init, State::ReadyToReceive);
        assert_eq!(connect.needed, 0x80 | 0x100 | 0x1000 | 0x8000 | 0x20000 | 0x10_0000);
        assert_eq!(connect.optional, 0x4000 | 0x8 | 0x10);
        let start = rule(State::ReadyToReceive, State::ReadyToSend);
        assert_eq!(start.needed, 0x200 | 0x400 | 0x800 | 0x10000 | 0x2000);
        assert_eq!(start.optional, 0x2 | 0x4000 | 0x8 | 0x8000 | 0x40000);
        assert_eq!(rule(State::ReadyToSend, State::Error), Rule::default());
    }

    #[test]
    fn the_life_of_a_datagram_queue_pair() {
        let rule = |from, to| rule(Service::UnreliableDatagram, from, to).unwrap_or_default();
        assert_eq!(rule(State::Reset, State::Init).needed, 0x10 | 0x20 | 0x40);
        assert_eq!(rule(State::Init, State::ReadyToReceive).needed, 0);
        assert_eq!(rule(State::ReadyToReceive, State::ReadyToSend), Rule { needed: 0x10000, optional: 0x2 | 0x40 });
        assert_eq!(rule(State::SendQueueError, State::ReadyToSend).optional, 0x2 | 0x40);
    }

    #[test]
    fn the_sides_of_xrc_have_what_they_do() {
        let needed = |service, from, to| rule(service, from, to).unwrap_or_default().needed;
        assert_eq!(needed(Service::XrcSend, State::Init, State::ReadyToReceive) & (RNR_TIMER | DEST_READS), 0);
        assert_eq!(needed(Service::XrcReceive, State::ReadyToReceive, State::ReadyToSend), SQ_PSN | TIMEOUT);
    }

    #[test]
    fn what_is_missing_and_what_is_too_much_is_refused() {
        let rule = Rule { needed: PKEY | PORT, optional: QKEY };
        assert_eq!(rule.check(PKEY | PORT), Ok(()));
        assert_eq!(rule.check(PKEY | PORT | QKEY | mask::IBV_QP_STATE.0), Ok(()));
        assert_eq!(rule.check(PKEY), Err(Errno::INVALID));
        assert_eq!(rule.check(PKEY | PORT | PATH), Err(Errno::INVALID));
        assert_eq!(rule.check(PKEY | PORT | 1 << 31), Err(Errno::INVALID));
    }
}
