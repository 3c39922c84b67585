//! Queues with all fields, their events, their size, and counters.

use std::time::Duration;

use sideway::ibverbs::completion::GenericCompletionQueue;
use sideway::ibverbs::completion::{
    CompletionCounterType, CompletionModeration, CompletionQueue, CountedOperations,
    CreateCompletionQueueWorkCompletionFlags as Fields, PollCompletionQueueError,
};
use sideway_tests::recording::{Completion, Recording};

use super::{Outcome, open, show};

pub(super) fn act(recording: &Recording) -> Outcome {
    let context = open(recording)?;
    let channel = context.create_comp_channel()?;
    let mut builder = context.create_cq_builder();
    builder.setup_comp_channel(&channel, 0).setup_cqe(16);
    let basic = builder.build()?;
    let extended = builder.setup_wc_flags(Fields::all()).build_ex()?;
    for mut cq in [GenericCompletionQueue::from(basic), extended.into()] {
        cq.req_notify(false)?;
        for wr_id in 0..2 {
            recording.complete(&cq, Completion { wr_id, wc_flags: 3, ..Completion::default() });
        }
        let event = channel.get_cq_event(Some(Duration::ZERO))?;
        show((&event, event.is_of(&cq)));
        drop(event);
        read(&mut cq)?;
        cq.resize(32)?;
        cq.modify(CompletionModeration::default())?;
        show((&cq, cq.cqe()));
    }

    show(context.query_comp_cntr_caps()?);
    let counter = context.create_comp_cntr(CompletionCounterType::Bytes)?;
    counter.set(5)?;
    counter.inc(2)?;
    counter.set_err(8)?;
    counter.inc_err(1)?;
    show((counter.read()?, counter.read_err()?));
    let pd = context.alloc_pd()?;
    let cq = context.create_cq_builder().build()?;
    let qp = pd.create_qp_builder().setup_send_cq(&cq).setup_recv_cq(&cq).build()?;
    counter.attach(&qp, CountedOperations::Send)?;
    Ok(())
}

/// Reads every field of the completions in the queue.
fn read(cq: &mut GenericCompletionQueue) -> Result<(), PollCompletionQueueError> {
    let mut poller = cq.start_poll()?;
    while let Some(wc) = poller.next()? {
        show((&wc, wc.wr_id(), wc.status(), wc.opcode(), wc.vendor_err(), wc.byte_len(), wc.imm_data()));
        show((wc.invalidated_rkey(), wc.qp_num(), wc.src_qp(), wc.wc_flags(), wc.slid(), wc.sl(), wc.source()));
        show((wc.dlid_path_bits(), wc.completion_timestamp(), wc.completion_wallclock_ns()));
        show((wc.cvlan(), wc.flow_tag(), wc.tag_matching_info()));
    }
    Ok(())
}
