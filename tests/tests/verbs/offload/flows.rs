//! Flows and actions: ownership, refusals, and the structs of IPsec.

use std::sync::Arc;

use sideway::ibverbs::flow::{AesGcmKey, EspAction, EspAttributes, EspFlags, FlowRule, FlowType};
use sideway::ibverbs::queue_pair::QueuePair;
use sideway_tests::recording::{Failure, Kind, Recording, Warnings, World};

use crate::offload::queue_pair;

fn protection() -> EspAction {
    let mut key = AesGcmKey::new(&[9; 16], 0xfeed).unwrap();
    (key.iv, key.icv_length) = (77, 12);
    EspAction {
        attributes: Some(EspAttributes {
            spi: 1,
            sequence: 2,
            traffic_flow_padding: 3,
            flags: EspFlags::FullOffload | EspFlags::Encrypt,
            hard_limit_packets: 1 << 40,
        }),
        key: Some(key),
        replay_window: Some(64),
        extended_sequence: Some(5),
        ..Default::default()
    }
}

#[test]
fn flow_keeps_the_queue_pair_and_its_actions() {
    let world = World::new();
    for qp in world.queue_pairs() {
        world.recording.calls();
        let action = world.context.create_flow_action_esp(&protection()).unwrap();
        let mut rule = FlowRule::new(FlowType::Normal, 1);
        rule.setup_action(&action);
        let (first, second) = (qp.create_flow(&rule).unwrap(), qp.create_flow(&rule).unwrap());
        drop((action, rule));
        let error = qp.close().unwrap_err();
        assert_eq!((error.verb(), error.errno().raw()), ("ibv_destroy_qp", libc::EBUSY));
        assert!(error.hint().unwrap().contains("flows"), "{error}");
        world.recording.calls();
        first.close().unwrap();
        assert_eq!(world.recording.verbs(), ["destroy_flow"]);
        drop(second);
        assert_eq!(world.recording.verbs(), ["destroy_flow", "destroy_flow_action", "destroy_qp"]);
    }
    world.end();
}

#[test]
fn action_attributes_arrive_unchanged() {
    let world = World::new();
    let action = world.context.create_flow_action_esp(&protection()).unwrap();
    let mut expected = vec![
        ("keymat_proto", 0),
        ("keymat_len", 56),
        ("replay_proto", 1),
        ("replay_len", 4),
        ("encap", 0),
        ("comp_mask", 1),
        ("esn", 5),
        ("spi", 1),
        ("seq", 2),
        ("tfc_pad", 3),
        ("flags", 5),
        ("hard_limit_pkts", 1 << 40),
        ("iv", 77),
        ("iv_algo", 0),
        ("salt", 0xfeed),
        ("icv_len", 12),
        ("key_len", 16),
    ];
    expected.extend([("key", 9); 16]);
    expected.push(("replay_size", 64));
    assert_eq!(world.recording.calls()[0].arguments, expected);

    // In a modify call, parts that are not set are absent in C too.
    action.modify_esp(&EspAction { extended_sequence: Some(6), ..Default::default() }).unwrap();
    assert_eq!(
        world.recording.calls()[0].arguments,
        [
            ("keymat_proto", 0),
            ("keymat_len", 0),
            ("replay_proto", 0),
            ("replay_len", 0),
            ("encap", 0),
            ("comp_mask", 1),
            ("esn", 6)
        ]
    );
    action.modify_esp(&EspAction::default()).unwrap();
    assert_eq!(world.recording.calls()[0].argument("comp_mask"), 0);
    Arc::into_inner(action).unwrap().close().unwrap();
    world.end();
}

#[test]
fn action_key_keeps_its_byte_order_and_is_not_printed() {
    let world = World::new();
    let bytes: Vec<u8> = (0..32).collect();
    let key = AesGcmKey::new(&bytes, 0).unwrap();
    assert!(format!("{key:?}").contains("key_length: 32") && !format!("{key:?}").contains("0302"));
    let action = EspAction { key: Some(key), attributes: Some(EspAttributes::default()), ..Default::default() };
    drop(world.context.create_flow_action_esp(&action).unwrap());
    let calls = world.recording.calls();
    let arrived: Vec<u64> =
        calls[0].arguments.iter().filter(|(name, _)| *name == "key").map(|(_, value)| *value).collect();
    assert_eq!(arrived, (0..32).collect::<Vec<u64>>());
    for length in [0, 15, 17, 33] {
        let error = AesGcmKey::new(&vec![0; length], 0).unwrap_err();
        assert_eq!(error.to_string(), format!("an AES key cannot have {length} bytes; use 16, 24 or 32"));
    }
}

#[test]
fn action_needs_attributes_and_key() {
    let world = World::new();
    for action in [
        EspAction::default(),
        EspAction { key: protection().key, ..Default::default() },
        EspAction { attributes: protection().attributes, ..Default::default() },
    ] {
        let error = world.context.create_flow_action_esp(&action).unwrap_err();
        assert!(error.to_string().starts_with("ibv_create_flow_action_esp: EINVAL"), "{error}");
    }
    assert_eq!(world.recording.verbs(), [""; 0]);
}

#[test]
fn action_of_another_context_is_refused() {
    let (here, there) = (World::new(), Recording::new());
    let foreign = there.open().create_flow_action_esp(&protection()).unwrap();
    let qp = queue_pair(&here);
    let mut rule = FlowRule::new(FlowType::Normal, 1);
    let error = qp.create_flow(rule.setup_action(&foreign)).unwrap_err();
    assert!(error.hint().unwrap().contains("an action of the rule belongs to another device context"), "{error}");
    assert_eq!(here.recording.verbs(), [""; 0]);
}

#[test]
fn refusal_reports_what_is_missing() {
    let world = World::new();
    let qp = queue_pair(&world);
    let rule = FlowRule::new(FlowType::Normal, 4);
    for (errno, words) in [
        (libc::EPERM, "CAP_NET_RAW"),
        (libc::EOPNOTSUPP, "does not support flow steering"),
        (libc::ENOSYS, "does not support flow steering"),
        (libc::EINVAL, "there is no port 4; use a port from 1 to 1"),
    ] {
        world.recording.fail("create_flow", 0, Failure::documented(errno));
        let error = qp.create_flow(&rule).unwrap_err();
        assert_eq!((error.verb(), error.errno().raw()), ("ibv_create_flow", errno));
        assert!(error.hint().unwrap().contains(words), "{error}");
    }
    let action = world.context.create_flow_action_esp(&protection()).unwrap();
    for failure in [Failure::documented(libc::EACCES), Failure::negative(libc::EACCES)] {
        world.recording.fail("modify_flow_action_esp", 0, failure);
        let error = action.modify_esp(&protection()).unwrap_err();
        assert_eq!(error.to_string(), "ibv_modify_flow_action_esp: EACCES (Permission denied)");
    }
}

#[test]
fn failed_flow_destroy_leaks_the_flow_and_its_parents() {
    let warnings = Warnings::listen();
    let world = World::new();
    let qp = queue_pair(&world);
    let counters = world.context.create_counters().unwrap();
    let mut rule = FlowRule::new(FlowType::Normal, 1);
    let flow = qp.create_flow(rule.setup_counters(&counters)).unwrap();
    drop((rule, counters, qp));
    world.recording.fail("destroy_flow", 0, Failure::documented(libc::EIO));
    drop(flow);
    let lines = warnings.take();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].contains("ibv_destroy_flow: EIO") && lines[0].contains("leaked"), "{lines:?}");
    let live = world.recording.live();
    for kind in [Kind::Flow, Kind::Counters, Kind::QueuePair] {
        assert!(live.contains(&kind), "{kind:?}");
    }
}
