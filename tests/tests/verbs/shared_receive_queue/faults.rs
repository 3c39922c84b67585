//! Objects are built and used, while each of these calls fails once. Each failure is an error that names the verb, and
//! leaks nothing.

use std::error::Error;

use sideway::ibverbs::queue_pair::{PostSendGuard, QueuePair, QueuePairAttributeMask};
use sideway::ibverbs::shared_receive_queue::{SharedReceiveQueueAttribute, TagMatchingOperationFlags};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway::ibverbs::xrc_domain::XrcDomainFlags;
use sideway_tests::recording::{Failure, Recording, Warnings};

fn scenario(recording: &Recording) -> Result<(), Box<dyn Error>> {
    let list = sideway::ibverbs::device::DeviceList::new()?;
    let context = list.find(&recording.name())?.open()?;
    drop(list);
    let pd = context.alloc_pd()?;
    let cq = context.create_cq_builder().build()?;

    let mut queue = pd.create_srq_builder().setup_max_wr(4).build()?;
    queue.srq_number()?;
    queue.modify(SharedReceiveQueueAttribute::new().setup_max_wr(8))?;
    queue.arm_limit(2)?;
    assert_eq!(queue.query()?.limit(), 2);
    let mut builder = pd.create_qp_builder();
    builder.setup_send_cq(&cq).setup_recv_cq(&cq).setup_max_inline_data(8).setup_srq(&queue);
    let mut qp = builder.build()?;
    drop(builder);
    let mut guard = queue.start_post_recv();
    (0..8).for_each(|wr_id| guard.construct_wr(wr_id).setup_no_data());
    guard.post()?;
    let mut guard = qp.start_post_send();
    guard.construct_wr(9, WorkRequestFlags::empty()).setup_send().setup_inline_data(b"ping");
    guard.post()?;

    let xrcd = context.open_xrcd(None, XrcDomainFlags::Create)?;
    pd.create_srq_builder().setup_xrc(&xrcd, &cq).build_ex()?;
    let made = xrcd.create_recv_qp()?;
    xrcd.open_qp(made.qp_number())?.query(QueuePairAttributeMask::State)?;

    let mut tags = pd.create_srq_builder().setup_tag_matching(&cq, 1, 1).build_ex()?;
    let mut guard = tags.start_post_ops();
    guard.construct_op(1, TagMatchingOperationFlags::empty()).setup_add(2, 3, 4).setup_no_data();
    guard.post()?;
    Ok(())
}

#[test]
fn each_call_may_fail() {
    let warnings = Warnings::listen();
    let whole = Recording::new();
    scenario(&whole).unwrap();
    let calls = whole.failable();
    assert!(calls > 25, "{calls}");
    assert_eq!(whole.live(), []);
    drop(whole);

    for errno in [libc::ENOMEM, libc::EINVAL, libc::EOPNOTSUPP] {
        for failure in [Failure::documented(errno), Failure::negative(errno), Failure::minus_one(errno)] {
            for index in 0..calls {
                let recording = Recording::new();
                recording.fail_any(index, failure);
                let result = scenario(&recording);
                let log = recording.calls();
                let failed = log.iter().find(|call| call.failed.is_some()).unwrap().verb;
                let what = format!("call {index}, {failed}: {failure:?}");
                assert_eq!(recording.violations(), [""; 0], "{what}");
                let lines = warnings.take();
                if ["destroy", "dealloc", "close"].iter().any(|word| failed.starts_with(word)) {
                    assert!(result.is_ok(), "{what}");
                    assert!(lines.iter().any(|line| line.contains(failed)), "{what}: {lines:?}");
                    continue;
                }
                // Device attributes are queried only to explain an error, and a failure then is ignored.
                if !failed.starts_with("query_device") {
                    assert!(result.unwrap_err().to_string().contains(failed), "{what}");
                }
                assert_eq!((lines, recording.live()), (vec![], vec![]), "{what}");
            }
        }
    }
}
