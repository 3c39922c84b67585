//! Objects are built and dropped, while each of these calls fails once. Each failure is an error that names the verb,
//! and leaks nothing.

use std::error::Error;

use sideway::ibverbs::counters::{CounterDescription, ReadCountersFlags};
use sideway::ibverbs::flow::{AesGcmKey, EspAction, EspAttributes, FlowRule, FlowType};
use sideway::ibverbs::queue_pair::{Ece, QueuePair, RateLimit};
use sideway::ibverbs::work_queue::{WorkQueueAttribute, WorkQueueState};
use sideway_tests::recording::{Call, Failure, Recording, Warnings};

fn scenario(recording: &Recording) -> Result<(), Box<dyn Error>> {
    let context = recording.open();
    let pd = context.alloc_pd()?;
    let cq = context.create_cq_builder().build()?;
    let mut queue = pd.create_wq_builder().setup_cq(&cq).build()?;
    queue.modify(WorkQueueAttribute::new().setup_state(WorkQueueState::Ready))?;
    let mut guard = queue.start_post_recv();
    guard.construct_wr(1).setup_no_data();
    guard.post()?;
    let table = context.create_rwq_ind_table(&[&queue, &queue])?;
    let spreading = pd.create_rss_qp_builder().setup_table(&table).setup_hash_key(&[1; 40]).build()?;
    let counters = context.create_counters()?;
    counters.attach(CounterDescription::Packets, 0)?;
    let attributes = Some(EspAttributes::default());
    let key = Some(AesGcmKey::new(&[2; 16], 3)?);
    let action = context.create_flow_action_esp(&EspAction { attributes, key, ..Default::default() })?;
    action.modify_esp(&EspAction { extended_sequence: Some(1), ..Default::default() })?;
    let mut rule = FlowRule::new(FlowType::Normal, 1);
    rule.setup_counters(&counters).setup_action(&action);
    let flow = spreading.create_flow(&rule)?;
    counters.attach_to_flow(CounterDescription::Bytes, 1, &flow)?;
    counters.read(&mut [0; 2], ReadCountersFlags::empty())?;
    let qp = pd.create_qp_builder().setup_send_cq(&cq).setup_recv_cq(&cq).build()?;
    let ece = qp.query_ece()?;
    assert_ne!(qp.set_ece(ece)?, Ece::default());
    qp.modify_rate_limit(&RateLimit::default())?;
    let group = "ff0e::1".parse()?;
    qp.attach_mcast(&group, 0)?;
    qp.detach_mcast(&group, 0)?;
    Ok(())
}

fn ends(call: &Call) -> bool {
    ["destroy", "dealloc", "close"].iter().any(|word| call.verb.starts_with(word))
}

#[test]
fn each_call_may_fail() {
    let warnings = Warnings::listen();
    let whole = Recording::new();
    scenario(&whole).unwrap();
    let calls = whole.failable();
    assert!(calls > 30, "{calls}");
    assert_eq!(whole.live(), []);
    drop(whole);
    // The support library opens the device, and panics if that fails.
    for index in 2..calls {
        for failure in [Failure::documented(libc::EIO), Failure::negative(libc::EIO), Failure::minus_one(libc::EIO)] {
            let recording = Recording::new();
            recording.fail_any(index, failure);
            let result = scenario(&recording);
            let log = recording.calls();
            let failed = log.iter().find(|call| call.failed.is_some()).unwrap();
            let what = format!("call {index}, {}: {failure:?}", failed.verb);
            assert_eq!(recording.violations(), [""; 0], "{what}");
            let lines = warnings.take();
            if ends(failed) {
                result.unwrap();
                let unsuccessful = log.iter().filter(|call| call.failed.is_some()).count();
                assert_eq!((recording.live().len(), lines.len()), (unsuccessful, unsuccessful), "{what}: {lines:?}");
                continue;
            }
            assert_eq!(recording.live(), [], "left over: {what}");
            assert_eq!(lines, [""; 0], "{what}");
            let text = result.unwrap_err().to_string();
            assert!(text.contains("EIO"), "{what}: {text}");
            assert!(text.contains(&format!("ibv_{}", failed.verb)), "{what}: {text}");
        }
    }
}
