//! Counters: indices, values, and ownership.

use std::sync::Arc;

use sideway::ibverbs::counters::{CounterDescription, ReadCountersFlags};
use sideway::ibverbs::flow::{FlowRule, FlowType};
use sideway::ibverbs::queue_pair::QueuePair;
use sideway_tests::recording::{Failure, Kind, Recording, World};

use crate::offload::queue_pair;

#[test]
fn counter_indices_and_values_match_c() {
    let world = World::new();
    let counters = world.context.create_counters().unwrap();
    counters.attach(CounterDescription::Packets, 0).unwrap();
    counters.attach(CounterDescription::Bytes, 7).unwrap();
    let mut values = [1; 5];
    counters.read(&mut values[1..4], ReadCountersFlags::PreferCached).unwrap();
    assert_eq!(values, [1, 100, 101, 102, 1], "as many as there is room for, and no more");
    counters.read(&mut [], ReadCountersFlags::empty()).unwrap();
    let calls = world.recording.calls();
    assert_eq!(calls[0].arguments, [("comp_mask", 0)]);
    // SAFETY: the pointer is not dereferenced.
    let raw = unsafe { counters.counters() }.as_ptr().addr() as u64;
    let attached = |desc, index| [("counters", raw), ("desc", desc), ("index", index), ("comp_mask", 0), ("flow", 0)];
    assert_eq!(calls[1].arguments, attached(0, 0));
    assert_eq!(calls[2].arguments, attached(1, 7));
    assert_eq!(calls[3].arguments, [("ncounters", 3), ("flags", 1)]);
    assert_eq!(calls[4].arguments, [("ncounters", 0), ("flags", 0)]);
    Arc::into_inner(counters).unwrap().close().unwrap();
    assert_eq!(world.recording.verbs(), ["destroy_counters"]);
    world.end();
}

#[test]
fn flow_keeps_its_counters_whether_named_or_attached_later() {
    let world = World::new();
    let qp = queue_pair(&world);
    let (named, later) = (world.context.create_counters().unwrap(), world.context.create_counters().unwrap());
    let mut rule = FlowRule::new(FlowType::Normal, 1);
    rule.setup_counters(&named);
    let flow = qp.create_flow(&rule).unwrap();
    later.attach_to_flow(CounterDescription::Bytes, 2, &flow).unwrap();
    let calls = world.recording.calls();
    // SAFETY: the pointer is not dereferenced.
    assert_eq!(calls.last().unwrap().argument("flow"), unsafe { flow.flow() }.as_ptr().addr() as u64);
    drop((rule, named, later));
    assert_eq!(world.recording.verbs(), [""; 0], "both are still there");
    assert_eq!(world.recording.live().iter().filter(|&&kind| kind == Kind::Counters).count(), 2);
    drop(flow);
    assert_eq!(world.recording.verbs(), ["destroy_flow", "destroy_counters", "destroy_counters"]);
    drop(qp);
    world.end();
}

#[test]
fn objects_of_another_context_are_refused() {
    let (here, there) = (World::new(), Recording::new());
    let foreign = there.open().create_counters().unwrap();
    let qp = queue_pair(&here);
    let mut rule = FlowRule::new(FlowType::Normal, 1);
    let flow = qp.create_flow(&rule).unwrap();
    there.calls();
    let error = foreign.attach_to_flow(CounterDescription::Bytes, 0, &flow).unwrap_err();
    assert!(error.hint().unwrap().contains("the flow belongs to another device context"), "{error}");
    here.recording.calls();
    rule.setup_counters(&foreign);
    let error = qp.create_flow(&rule).unwrap_err();
    assert_eq!((error.verb(), error.errno().raw()), ("ibv_create_flow", libc::EINVAL));
    assert!(error.hint().unwrap().contains("counters of the rule belong to another device context"), "{error}");
    assert_eq!((here.recording.verbs(), there.verbs()), (vec![], vec![]), "C was not asked");
}

#[test]
fn failures_name_their_verb() {
    let world = World::new();
    world.recording.fail("create_counters", 0, Failure::documented(libc::EMFILE));
    let error = world.context.create_counters().unwrap_err();
    assert_eq!((error.verb(), error.errno().raw()), ("ibv_create_counters", libc::EMFILE));
    let counters = world.context.create_counters().unwrap();
    for failure in [Failure::documented(libc::EBUSY), Failure::negative(libc::EBUSY), Failure::minus_one(libc::EBUSY)] {
        world.recording.fail("attach_counters_point_flow", 0, failure).fail("read_counters", 0, failure);
        let error = counters.attach(CounterDescription::from_raw(9), 0).unwrap_err();
        assert_eq!((error.verb(), error.errno().raw()), ("ibv_attach_counters_point_flow", libc::EBUSY));
        let error = counters.read(&mut [0], ReadCountersFlags::empty()).unwrap_err();
        assert_eq!((error.verb(), error.errno().raw()), ("ibv_read_counters", libc::EBUSY));
    }
    world.recording.fail("destroy_counters", 0, Failure::documented(libc::EIO));
    let error = Arc::into_inner(counters).unwrap().close().unwrap_err();
    assert_eq!(error.to_string(), "ibv_destroy_counters: EIO (Input/output error)");
    assert!(world.recording.live().contains(&Kind::Counters), "leaked, not used again");
}
