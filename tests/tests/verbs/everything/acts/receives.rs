//! Shared receive queues of every kind, and XRC.

use sideway::ibverbs::async_event::AsyncEventType;
use sideway::ibverbs::queue_pair::QueuePairAttributeMask;
use sideway::ibverbs::shared_receive_queue::{SharedReceiveQueueAttribute, TagMatchingOperationFlags as Flags};
use sideway::ibverbs::xrc_domain::XrcDomainFlags;
use sideway_tests::recording::{Raised, Recording};

use super::{Outcome, open, show};

pub(super) fn act(recording: &Recording) -> Outcome {
    let context = open(recording)?;
    let pd = context.alloc_pd()?;
    let cq = context.create_cq_builder().build()?;
    let mut queue = pd.create_srq_builder().setup_max_wr(4).build()?;
    show((&queue, queue.max_wr(), queue.max_sge(), queue.srq_number()?));
    queue.modify(SharedReceiveQueueAttribute::new().setup_max_wr(8))?;
    queue.arm_limit(2)?;
    show(queue.query()?);
    let qp = pd.create_qp_builder().setup_send_cq(&cq).setup_recv_cq(&cq).setup_srq(&queue).build()?;
    let mut guard = queue.start_post_recv();
    (0..2).for_each(|wr_id| guard.construct_wr(wr_id).setup_no_data());
    guard.post()?;
    let events = context.async_events()?;
    // SAFETY: the pointer becomes a number.
    let raw = unsafe { queue.srq() }.as_ptr();
    recording.raise(&context, Raised::of_object(AsyncEventType::SharedReceiveQueueLimitReached.raw(), raw));
    show((events.try_get_async_event()?, &qp));

    let xrcd = context.open_xrcd(None, XrcDomainFlags::Create)?;
    show(pd.create_srq_builder().setup_xrc(&xrcd, &cq).build_ex()?);
    let made = xrcd.create_recv_qp()?;
    show((&made, made.qp_number(), made.state()));
    show(xrcd.open_qp(made.qp_number())?.query(QueuePairAttributeMask::State)?);

    let mut tags = pd.create_srq_builder().setup_tag_matching(&cq, 1, 1).build_ex()?;
    let mut guard = tags.start_post_ops();
    guard.construct_op(1, Flags::empty()).setup_add(2, 3, 4).setup_no_data();
    guard.post()?;
    show((tags.posted_tag(0), &tags));
    Ok(())
}
