//! Device offloads.

use sideway::ibverbs::async_event::AsyncEventType;
use sideway::ibverbs::counters::{CounterDescription, ReadCountersFlags};
use sideway::ibverbs::flow::{AesGcmKey, EspAction, EspAttributes, FlowRule, FlowType};
use sideway::ibverbs::queue_pair::QueuePairAttributeMask;
use sideway::ibverbs::work_queue::{WorkQueueAttribute, WorkQueueState};
use sideway_tests::recording::{Raised, Recording};

use super::{Outcome, open, show};

pub(super) fn act(recording: &Recording) -> Outcome {
    let context = open(recording)?;
    let pd = context.alloc_pd()?;
    let cq = context.create_cq_builder().build()?;
    let mut queue = pd.create_wq_builder().setup_cq(&cq).build()?;
    queue.modify(WorkQueueAttribute::new().setup_state(WorkQueueState::Ready))?;
    show((&queue, queue.wq_number(), queue.state()));
    let mut guard = queue.start_post_recv();
    guard.construct_wr(1).setup_no_data();
    guard.post()?;
    let events = context.async_events()?;
    // SAFETY: the pointer becomes a number.
    let raw = unsafe { queue.wq() }.as_ptr();
    recording.raise(&context, Raised::of_object(AsyncEventType::WorkQueueFatal.raw(), raw));
    show(events.try_get_async_event()?);

    let table = context.create_rwq_ind_table(&[&queue, &queue])?;
    let spreading = pd.create_rss_qp_builder().setup_table(&table).setup_hash_key(&[1; 40]).build()?;
    show((&spreading, spreading.qp_number(), spreading.state(), spreading.query(QueuePairAttributeMask::State)?));
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
    let mut values = [0; 2];
    counters.read(&mut values, ReadCountersFlags::empty())?;
    show((values, &flow, &action, &counters));
    Ok(())
}
