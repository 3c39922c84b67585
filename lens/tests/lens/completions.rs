//! Completions that faults delay, lose or reorder, and those that fail.

use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, mem, ptr};

use rdma_lens::What;
use rdma_mummy_sys as ffi;
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::WorkCompletionStatus as Status;
use sideway::ibverbs::queue_pair::{
    BasicQueuePair, ExtendedQueuePair, PostSendGuard, QueuePair, QueuePairAttributeMask, QueuePairState,
};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway_tests::loopback::{Give, Kind, Loopback, Memory, QueueKind, Range};

use crate::support::{Session, calls, completions};

const KINDS: [QueueKind; 2] = [QueueKind::Basic, QueueKind::Extended];

type Pair = Loopback<BasicQueuePair>;

pub(crate) fn write<Q: Kind>(pair: &mut Loopback<Q>, wr_id: u64) {
    let range = pair.near.range(0, 8);
    let (rkey, address) = pair.far.remote(0);
    let mut batch = pair.near.qp.start_post_send();
    batch.construct_wr(wr_id, WorkRequestFlags::Signaled).setup_write(rkey, address).give(range);
    batch.post().unwrap();
}

/// A receive of the near side, with immediate data.
fn receive(pair: &mut Pair, wr_id: u64, immediate: u32) {
    pair.near.post_receive(wr_id, 64, 64);
    let range = pair.far.range(0, 24);
    let mut batch = pair.far.qp.start_post_send();
    batch.construct_wr(wr_id, WorkRequestFlags::Signaled).setup_send_imm(immediate).give(range);
    batch.post().unwrap();
    pair.far.success();
}

/// The delay ends with the lens.
#[test]
fn delayed_completion_holds_its_queue_and_keeps_its_fields() {
    for queue in KINDS {
        let session = Session::with_faults("after 1 completions on qp 1: delay 600 s");
        let mut pair = Pair::new(queue);
        write(&mut pair, 1);
        assert_eq!(pair.near.success().wr_id, 1);
        receive(&mut pair, 2, 77);
        receive(&mut pair, 3, 78);
        assert_eq!(pair.near.poll(), None);
        // Those of another queue overtake.
        write(&mut pair, 4);
        assert_eq!(pair.near.success().wr_id, 4);
        assert_eq!(pair.near.poll(), None);
        let turn = session.end();
        write(&mut pair, 5);
        for (wr_id, immediate) in [(2, 77), (3, 78)] {
            let found = pair.near.success();
            assert_eq!((found.wr_id, found.imm_data, found.byte_len), (wr_id, Some(immediate), Some(24)), "{queue:?}");
        }
        assert_eq!(pair.near.success().wr_id, 5);
        pair.works();
        drop((pair, turn));
    }
}

#[test]
fn delay_ends_after_its_time() {
    for queue in KINDS {
        let session = Session::with_faults("each completion on qp 1: delay 20 ms");
        let mut pair = Pair::new(queue);
        let start = Instant::now();
        write(&mut pair, 1);
        assert_eq!(pair.near.success().wr_id, 1);
        assert!(start.elapsed() >= Duration::from_millis(20));
        drop(pair);
        let records = session.records();
        let faults = calls(&records, "fault");
        assert!(
            faults[0].0.contains(&("completion".to_owned(), "request with wr_id 1".to_owned())),
            "{:?}",
            faults[0].0
        );
        assert_eq!(completions(&records).len(), 1);
    }
}

/// The completion queue of a side with a channel.
pub(crate) struct Events(pub(crate) *mut ffi::ibv_cq);

impl Events {
    pub(crate) fn of(pair: &Pair) -> Self {
        // SAFETY: the queue pair is live.
        Self(unsafe { (*pair.near.qp.qp().as_ptr()).send_cq })
    }

    pub(crate) fn arm(&self) {
        // SAFETY: the queue is live.
        assert_eq!(unsafe { ffi::ibv_req_notify_cq(self.0, 0) }, 0);
    }

    /// Waits for an event on the descriptor of the channel.
    pub(crate) fn ready(&self) {
        // SAFETY: the queue and its channel are live.
        unsafe {
            let mut poll = libc::pollfd { fd: (*(*self.0).channel).fd, events: libc::POLLIN, revents: 0 };
            assert_eq!(libc::poll(&raw mut poll, 1, 60_000), 1, "no event");
        }
    }

    /// Waits for an event of the queue, takes and acknowledges it.
    pub(crate) fn wait(&self) {
        self.ready();
        // SAFETY: the queue and its channel are live, and the results are writable.
        unsafe {
            let channel = (*self.0).channel;
            let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
            assert_eq!(ffi::ibv_get_cq_event(channel, &raw mut cq, &raw mut context), 0);
            assert_eq!((cq, context), (self.0, (*self.0).cq_context));
            ffi::ibv_ack_cq_events(cq, 1);
        }
    }
}

pub(crate) fn with_channel(queue: QueueKind) -> Pair {
    let context = sideway_tests::device::open();
    let channel = context.create_comp_channel().unwrap();
    Pair::with(queue, Some((&context, &channel)), |_| {})
}

#[test]
fn program_that_sleeps_is_woken_for_a_delayed_completion() {
    for queue in KINDS {
        let session = Session::with_faults("each completion on qp 1: delay 20 ms");
        let mut pair = with_channel(queue);
        let events = Events::of(&pair);
        for wr_id in 1..=3 {
            events.arm();
            write(&mut pair, wr_id);
            let found = loop {
                if let Some(found) = pair.near.poll() {
                    break found;
                }
                events.wait();
                events.arm();
            };
            assert_eq!((found.wr_id, found.status), (wr_id, Status::Success));
        }
        drop(pair);
        let records = session.records();
        for verb in
            ["ibv_destroy_qp", "ibv_destroy_cq", "ibv_destroy_comp_channel", "ibv_dealloc_pd", "ibv_close_device"]
        {
            let found = calls(&records, verb);
            assert!(!found.is_empty() && found.iter().all(|call| call.1.is_none()), "{verb}");
        }
    }
}

#[test]
fn program_that_sleeps_is_woken_when_the_lens_ends() {
    let session = Session::with_faults("each completion on qp 1: delay 600 s");
    let mut pair = with_channel(QueueKind::Basic);
    let events = Events::of(&pair);
    events.arm();
    write(&mut pair, 1);
    // The event of the device.
    events.wait();
    assert_eq!(pair.near.poll(), None);
    events.arm();
    assert_eq!(pair.near.poll(), None);
    let turn = session.end();
    events.wait();
    assert_eq!(pair.near.success().wr_id, 1);
    drop((pair, turn));
}

/// A flushed receive of a queue pair that is not connected, as an iWARP device has no other without a peer.
#[test]
fn event_of_a_flushed_receive_is_raised_later() {
    let session = Session::with_faults("each completion: delay 600 s");
    let context = sideway_tests::device::open();
    // SAFETY: the objects are live until they are destroyed, the attributes are plain numbers and pointers to them,
    // and the receive has no memory.
    unsafe {
        let context = context.context().as_ptr();
        let (pd, channel) = (ffi::ibv_alloc_pd(context), ffi::ibv_create_comp_channel(context));
        let cq = ffi::ibv_create_cq(context, 4, ptr::null_mut(), channel, 0);
        let mut attr: ffi::ibv_qp_init_attr = mem::zeroed();
        (attr.send_cq, attr.recv_cq, attr.qp_type) = (cq, cq, ffi::ibv_qp_type::IBV_QPT_RC);
        (attr.cap.max_send_wr, attr.cap.max_recv_wr) = (1, 1);
        let qp = ffi::ibv_create_qp(pd, &raw mut attr);
        assert!(!qp.is_null());
        let mut to: ffi::ibv_qp_attr = mem::zeroed();
        (to.qp_state, to.port_num) = (ffi::ibv_qp_state::IBV_QPS_INIT, 1);
        ffi::ibv_modify_qp(qp, &raw mut to, 1 | 8 | 16 | 32);
        to.qp_state = ffi::ibv_qp_state::IBV_QPS_ERR;
        assert_eq!(ffi::ibv_modify_qp(qp, &raw mut to, 1), 0);
        let mut request: ffi::ibv_recv_wr = mem::zeroed();
        assert_eq!(ffi::ibv_post_recv(qp, &raw mut request, &mut ptr::null_mut()), 0);
        let events = Events(cq);
        let mut wc: ffi::ibv_wc = mem::zeroed();
        assert_eq!(ffi::ibv_poll_cq(cq, 1, &raw mut wc), 0, "it is held back");
        events.arm();
        let turn = session.end();
        events.wait();
        assert_eq!(ffi::ibv_poll_cq(cq, 1, &raw mut wc), 1);
        assert_eq!(wc.status, ffi::ibv_wc_status::IBV_WC_WR_FLUSH_ERR);
        assert_eq!(ffi::ibv_destroy_qp(qp), 0);
        assert_eq!(ffi::ibv_destroy_cq(cq), 0);
        assert_eq!(ffi::ibv_destroy_comp_channel(channel), 0);
        assert_eq!(ffi::ibv_dealloc_pd(pd), 0);
        drop(turn);
    }
}

#[test]
fn event_is_raised_later_on_an_iwarp_device() {
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["--exact", "completions::event_of_a_flushed_receive_is_raised_later"]);
    let output = child.env(sideway_tests::device::TEST_DEVICE, "softiw0").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn lost_completion_frees_the_request() {
    for queue in KINDS {
        let session = Session::with_faults("after 1 completions on qp 1: lose");
        let mut pair = Pair::new(queue);
        // More requests than the queue pair can have at once.
        for wr_id in 1..=64 {
            write(&mut pair, wr_id);
            if wr_id != 2 {
                assert_eq!(pair.near.success().wr_id, wr_id);
            }
        }
        drop(pair);
        let records = session.records();
        assert_eq!(completions(&records).len(), 63);
        let left = records.iter().rev().find_map(|record| match record.what {
            What::Completion { in_flight, .. } => Some(in_flight),
            _ => None,
        });
        assert_eq!(left, Some(0));
    }
}

#[test]
fn completion_of_another_queue_comes_first() {
    for queue in KINDS {
        let session = Session::with_faults("after 0 completions on qp 1: reorder");
        let mut pair = Pair::new(queue);
        write(&mut pair, 1);
        write(&mut pair, 2);
        receive(&mut pair, 3, 0);
        // A receive overtakes both requests, which keep their order.
        let found: Vec<u64> = (0..3).map(|_| pair.near.success().wr_id).collect();
        assert_eq!(found, [3, 1, 2], "{queue:?}");
        drop((pair, session));
    }
}

/// Nothing overtakes it.
#[test]
fn reordered_completion_arrives_alone() {
    let session = Session::with_faults("each completion on qp 1: reorder");
    let mut pair = Pair::new(QueueKind::Extended);
    write(&mut pair, 1);
    assert_eq!(pair.near.success().wr_id, 1);
    drop((pair, session));
}

#[test]
fn held_completions_end_with_their_queue_pair() {
    for queue in KINDS {
        let session = Session::with_faults("each completion on qp 1: delay 600 s");
        let mut pair = Pair::new(queue);
        write(&mut pair, 1);
        assert_eq!(pair.near.poll(), None);
        pair.reconnect(7);
        let turn = session.end();
        assert_eq!(pair.near.poll(), None);
        pair.works();
        drop((pair, turn));
        // The queue pair and its completion queue are destroyed.
        let session = Session::with_faults("each completion on qp 1: delay 600 s");
        let mut pair = Pair::new(queue);
        write(&mut pair, 1);
        assert_eq!(pair.near.poll(), None);
        drop(pair);
        let turn = session.end();
        let mut pair = Pair::new(queue);
        pair.works();
        drop((pair, turn));
    }
}

fn failure_comes_before_the_flushed_receives<Q: Kind>(queue: QueueKind) {
    let session = Session::with_faults("after 1 posts on qp 1: complete with RETRY_EXC");
    let mut pair = Loopback::<Q>::new(queue);
    for wr_id in 1..=2 {
        pair.near.post_receive(wr_id, 0, 8);
    }
    write(&mut pair, 1);
    assert_eq!(pair.near.success().wr_id, 1);
    for wr_id in 2..=3 {
        write(&mut pair, wr_id);
    }
    let found: Vec<(u64, Status)> = (0..4)
        .map(|_| {
            let found = pair.near.completion();
            (found.wr_id, found.status)
        })
        .collect();
    assert_eq!(found[0], (2, Status::RetryCounterExceededError), "{queue:?}");
    assert!(found[1..].iter().all(|(_, status)| *status == Status::WorkRequestFlushedError), "{found:?}");
    drop((pair, session));
}

#[test]
fn request_fails_before_the_receives_are_flushed() {
    for queue in KINDS {
        failure_comes_before_the_flushed_receives::<BasicQueuePair>(queue);
        failure_comes_before_the_flushed_receives::<ExtendedQueuePair>(queue);
    }
}

/// The driver refuses the request that was to fail, so the receives do not wait for it.
#[test]
fn receives_are_flushed_after_a_refused_request() {
    let session = Session::with_faults("each post on qp 1: complete with RETRY_EXC");
    let mut pair = Pair::new(QueueKind::Basic);
    pair.near.post_receive(1, 0, 8);
    // SAFETY: the queue pair is live, and the driver refuses the number of segments.
    unsafe {
        let mut request: ffi::ibv_send_wr = mem::zeroed();
        request.num_sge = 1 << 20;
        let mut bad = ptr::null_mut();
        assert_ne!(ffi::ibv_post_send(pair.near.qp.qp().as_ptr(), &raw mut request, &raw mut bad), 0);
    }
    assert_eq!(pair.near.completion().status, Status::WorkRequestFlushedError);
    drop((pair, session));
}

#[test]
fn post_to_a_shared_queue_is_refused() {
    let session = Session::with_faults("after 1 receives on srq 2: fail with ENOMEM");
    let pd = sideway_tests::device::open().alloc_pd().unwrap();
    let mut queues = [(); 2].map(|()| pd.create_srq_builder().setup_max_wr(8).build().unwrap());
    let memory = Memory::new(&pd, 64, AccessFlags::LocalWrite);
    for refused in [false, true, false] {
        let are_refused = queues.each_mut().map(|srq| {
            let mut batch = srq.start_post_recv();
            batch.construct_wr(1).give(Range::of(&memory, 0, 8));
            batch.post().is_err()
        });
        assert_eq!(are_refused, [false, refused]);
    }
    drop((queues, memory, pd));
    let records = session.records();
    let injected = records.iter().filter(|record| record.injected);
    assert!(injected.clone().all(|record| matches!(record.what, What::Refused { is_receive: true, .. })));
    assert_eq!(injected.count(), 1);
}

#[test]
fn receive_of_a_shared_queue_fails() {
    for queue in KINDS {
        let session = Session::with_faults("after 1 completions on srq 1: complete with LOC_PROT");
        let context = sideway_tests::device::open();
        let channel = context.create_comp_channel().unwrap();
        let pd = context.alloc_pd().unwrap();
        let mut srq = pd.create_srq_builder().setup_max_wr(8).build().unwrap();
        let memory = Memory::new(&pd, 64, AccessFlags::LocalWrite);
        let mut pair = Pair::with(queue, Some((&context, &channel)), |builder| _ = builder.setup_srq(&srq));
        for wr_id in 1..=3 {
            let mut batch = srq.start_post_recv();
            batch.construct_wr(wr_id).give(Range::of(&memory, 0, 8));
            batch.post().unwrap();
            pair.near.post_send(wr_id, 0, 8);
            assert_eq!(pair.near.success().wr_id, wr_id);
        }
        let found = [(); 3].map(|()| pair.far.completion().status);
        assert_eq!(
            found,
            [Status::Success, Status::LocalProtectionError, Status::WorkRequestFlushedError],
            "{queue:?}"
        );
        let state = pair.far.qp.query(QueuePairAttributeMask::State).unwrap().0.state();
        // The poll that found no more has ended.
        assert_eq!((pair.far.poll(), state), (None, QueuePairState::Error));
        drop((pair, srq, memory, pd));
        let records = session.records();
        let injected =
            records.iter().filter(|record| record.injected && matches!(record.what, What::Completion { .. }));
        assert_eq!(injected.count(), 2);
    }
}
