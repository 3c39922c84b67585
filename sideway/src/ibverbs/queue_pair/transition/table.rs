//! The transitions as rows, with the names of C. The rows were written from the kernel's check (`ib_modify_qp_is_ok`)
//! and the manual page of `ibv_modify_qp`, independently of the functions that the tests compare with them.

use proptest::prelude::*;

use super::{Mask, State, Type, reachable, standard_transition as transition};

/// Each row has the old state, the new state, the types, the required attributes and, after the slash, the optional
/// attributes. In addition, every state except UNKNOWN can change to RESET, and every state except RESET can change to
/// ERR, without attributes.
const ROWS: &str = "
    RESET INIT  RC UC XRC_SEND XRC_RECV : PKEY_INDEX PORT ACCESS_FLAGS /
    RESET INIT  UD                      : PKEY_INDEX PORT QKEY /
    RESET INIT  RAW_PACKET              : PORT /

    INIT  INIT  RC UC XRC_SEND XRC_RECV : / PKEY_INDEX PORT ACCESS_FLAGS
    INIT  INIT  UD                      : / PKEY_INDEX PORT QKEY
    INIT  INIT  RAW_PACKET              : /

    INIT  RTR   RC XRC_RECV : AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER / ALT_PATH ACCESS_FLAGS PKEY_INDEX
    INIT  RTR   UC XRC_SEND : AV PATH_MTU DEST_QPN RQ_PSN / ALT_PATH ACCESS_FLAGS PKEY_INDEX
    INIT  RTR   UD          : / PKEY_INDEX QKEY
    INIT  RTR   RAW_PACKET  : /

    RTR   RTS   RC         : TIMEOUT RETRY_CNT RNR_RETRY SQ_PSN MAX_QP_RD_ATOMIC / CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE
    RTR   RTS   XRC_SEND   : TIMEOUT RETRY_CNT RNR_RETRY SQ_PSN MAX_QP_RD_ATOMIC / CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE
    RTR   RTS   XRC_RECV   : TIMEOUT SQ_PSN / CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE
    RTR   RTS   UC         : SQ_PSN / CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE
    RTR   RTS   UD         : SQ_PSN / CUR_STATE QKEY
    RTR   RTS   RAW_PACKET : / RATE_LIMIT

    RTS   RTS   RC XRC_RECV : / CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE MIN_RNR_TIMER
    RTS   RTS   UC XRC_SEND : / CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE
    RTS   RTS   UD          : / CUR_STATE QKEY
    RTS   RTS   RAW_PACKET  : / RATE_LIMIT

    RTS   SQD   RC UC UD XRC_SEND XRC_RECV : / EN_SQD_ASYNC_NOTIFY
    RTS   SQD   RAW_PACKET                 : /

    SQD   RTS   RC XRC_RECV : / CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE
    SQD   RTS   UC XRC_SEND : / CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE
    SQD   RTS   UD          : / CUR_STATE QKEY
    SQD   RTS   RAW_PACKET  : /

    SQD   SQD   RC         : / PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC MAX_DEST_RD_ATOMIC ALT_PATH ACCESS_FLAGS PKEY_INDEX MIN_RNR_TIMER PATH_MIG_STATE
    SQD   SQD   XRC_SEND   : / PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC ALT_PATH ACCESS_FLAGS PKEY_INDEX PATH_MIG_STATE
    SQD   SQD   XRC_RECV   : / PORT AV TIMEOUT MAX_DEST_RD_ATOMIC ALT_PATH ACCESS_FLAGS PKEY_INDEX MIN_RNR_TIMER PATH_MIG_STATE
    SQD   SQD   UC         : / AV ALT_PATH ACCESS_FLAGS PKEY_INDEX PATH_MIG_STATE
    SQD   SQD   UD         : / PKEY_INDEX QKEY
    SQD   SQD   RAW_PACKET : /

    SQE   RTS   UD                              : / CUR_STATE QKEY
    SQE   RTS   UC                              : / CUR_STATE ACCESS_FLAGS
    SQE   RTS   RC XRC_SEND XRC_RECV RAW_PACKET : /
";

/// The bits of `enum ibv_qp_attr_mask`.
const ATTRIBUTES: [(&str, u32); 22] = [
    ("STATE", 0),
    ("CUR_STATE", 1),
    ("EN_SQD_ASYNC_NOTIFY", 2),
    ("ACCESS_FLAGS", 3),
    ("PKEY_INDEX", 4),
    ("PORT", 5),
    ("QKEY", 6),
    ("AV", 7),
    ("PATH_MTU", 8),
    ("TIMEOUT", 9),
    ("RETRY_CNT", 10),
    ("RNR_RETRY", 11),
    ("RQ_PSN", 12),
    ("MAX_QP_RD_ATOMIC", 13),
    ("ALT_PATH", 14),
    ("MIN_RNR_TIMER", 15),
    ("SQ_PSN", 16),
    ("MAX_DEST_RD_ATOMIC", 17),
    ("PATH_MIG_STATE", 18),
    ("CAP", 19),
    ("DEST_QPN", 20),
    ("RATE_LIMIT", 25),
];
/// The values of `enum ibv_qp_state`.
const STATES: [&str; 8] = ["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR", "UNKNOWN"];
/// Values of `enum ibv_qp_type`.
const TYPES: [(&str, u32); 6] = [("RC", 2), ("UC", 3), ("UD", 4), ("RAW_PACKET", 8), ("XRC_SEND", 9), ("XRC_RECV", 10)];

fn bits(names: &str) -> u32 {
    let bit = |name| 1 << ATTRIBUTES.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("{name}")).1;
    names.split_whitespace().map(bit).fold(0, |all, bit: u32| all | bit)
}

/// Returns the required and the optional attributes; `None` if there is no such transition.
fn expected(qp_type: u32, from: u32, to: u32) -> Option<(u32, u32)> {
    let name = |value: u32| STATES.get(value as usize).copied();
    let (from, to) = (name(from)?, name(to)?);
    let (qp_type, _) = TYPES.iter().find(|(_, value)| *value == qp_type)?;
    match (from, to) {
        ("UNKNOWN", _) | (_, "UNKNOWN") | ("RESET", "ERR") => return None,
        (_, "RESET" | "ERR") => return Some((0, 0)),
        _ => {}
    }
    let mut rows = ROWS.lines().filter_map(|row| {
        let (transition, attributes) = row.split_once(':')?;
        let mut words = transition.split_whitespace();
        let same = words.next() == Some(from) && words.next() == Some(to) && words.any(|word| word == *qp_type);
        same.then(|| attributes.split_once('/').unwrap_or_else(|| panic!("{row}")))
    });
    let (needed, optional) = rows.next()?;
    assert!(rows.next().is_none(), "{from} {to} {qp_type} is there twice");
    Some((bits(needed), bits(optional)))
}

#[test]
fn every_row_is_parsed() {
    let read =
        TYPES.iter().flat_map(|(_, qp_type)| (0..8).flat_map(move |from| (0..8).map(move |to| (*qp_type, from, to))));
    let transitions = read.filter(|&(qp_type, from, to)| expected(qp_type, from, to).is_some()).count();
    // Each type has nine transitions from the rows, and thirteen from the additional rule.
    assert_eq!(transitions, 6 * (9 + 13));
}

#[test]
fn every_transition_matches_the_rows() {
    for qp_type in 0..300 {
        for from in 0..10 {
            for to in 0..10 {
                let found = transition(Type::from_raw(qp_type), State::from_raw(from), State::from_raw(to));
                let found = found.map(|transition| (transition.needed.bits(), transition.optional.bits()));
                assert_eq!(found, expected(qp_type, from, to), "type {qp_type}, {from} to {to}");
            }
        }
    }
}

fn a_type() -> impl Strategy<Value = u32> {
    prop_oneof![9 => proptest::sample::select(TYPES.map(|(_, value)| value).to_vec()), 1 => any::<u32>()]
}

fn a_state() -> impl Strategy<Value = u32> {
    prop_oneof![9 => 0..8_u32, 1 => any::<u32>()]
}

proptest! {
    #[test]
    fn mask_faults_match_the_rows(qp_type in a_type(), from in a_state(), to in a_state(), mask: u32) {
        let Some((needed, optional)) = expected(qp_type, from, to) else { return Ok(()) };
        let transition = transition(Type::from_raw(qp_type), State::from_raw(from), State::from_raw(to));
        let (missing, invalid) = transition.unwrap().faults(Mask::from_bits_retain(mask));
        prop_assert_eq!(missing.bits(), needed & !mask);
        prop_assert_eq!(invalid.bits(), mask & !(needed | optional | 1));
        // The kernel's condition for a correct mask.
        let right = mask & needed == needed && mask & !(needed | optional | 1) == 0;
        prop_assert_eq!(missing.is_empty() && invalid.is_empty(), right);
    }

    #[test]
    fn missing_and_extra_attributes_are_named(
        qp_type in a_type(), from in 0..8_u32, to in 0..8_u32, left_out: u32, put_in: u32,
    ) {
        let Some((needed, optional)) = expected(qp_type, from, to) else { return Ok(()) };
        let transition = transition(Type::from_raw(qp_type), State::from_raw(from), State::from_raw(to)).unwrap();
        let (left_out, put_in) = (left_out & needed, put_in & !(needed | optional | 1));
        let mask = Mask::from_bits_retain((needed & !left_out) | put_in | 1);
        let (missing, invalid) = transition.faults(mask);
        prop_assert_eq!((missing.bits(), invalid.bits()), (left_out, put_in));
    }

    #[test]
    fn reachable_states_match_the_rows(qp_type in a_type(), from in a_state()) {
        let found: Vec<u32> = reachable(transition, Type::from_raw(qp_type), State::from_raw(from)).map(State::raw).collect();
        let rows: Vec<u32> = (0..8).filter(|&to| expected(qp_type, from, to).is_some()).collect();
        prop_assert_eq!(found, rows);
    }
}
