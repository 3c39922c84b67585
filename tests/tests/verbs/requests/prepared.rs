//! Prepared lists: the requests that arrive after changes, and refused changes.

use std::thread;

use sideway::error::VerbError;
use sideway::ibverbs::queue_pair::{
    BasicQueuePair, BasicSendQueue, PostSendGuard, PreparedSends, QueuePair, SendQueue,
};
use sideway::ibverbs::work_request::{PostErrorKind, PostSendError, RefusalReason, WorkRequestFlags};
use sideway_tests::recording::{Bad, Failure, Posted, World};

use crate::requests::support::{SIGNALED, datagrams, handle, sized};

fn connected(world: &World) -> BasicQueuePair {
    sized(world, world.pd.create_qp_builder()).build().unwrap()
}

fn post(send: &mut BasicSendQueue, list: &PreparedSends<'_>) -> Result<(), PostSendError> {
    // SAFETY: the recording device touches no memory.
    unsafe { send.post_prepared(list) }
}

/// Writes with inline data, numbered from 10.
fn writes<'q>(send: &BasicSendQueue, count: u64) -> PreparedSends<'q> {
    let mut list = send.prepare(8).unwrap();
    let mut guard = list.build();
    for at in 0..count {
        guard.construct_wr(10 + at, SIGNALED).setup_write(7, 0x700 + at).setup_inline_data(&[at as u8; 3]);
    }
    guard.finish().unwrap();
    list
}

fn numbers(world: &World) -> Vec<u64> {
    world.recording.posted().iter().map(|request| request.wr_id).collect()
}

/// Checks that a setter was refused with `EINVAL`.
#[track_caller]
fn refused<T>(result: Result<T, VerbError>, text: &str) {
    let Err(error) = result else { panic!("not refused: {text}") };
    assert_eq!(error.errno().raw(), libc::EINVAL);
    assert!(error.to_string().contains(text), "{error}");
}

#[test]
fn prepared_list_arrives_as_built_and_changed() {
    let world = World::new();
    let mut qp = connected(&world);
    let (send, _) = qp.queues();
    let mut list = send.prepare(8).unwrap();
    let mut guard = list.build();
    // SAFETY: the recording device touches no memory.
    unsafe {
        guard.construct_wr(1, SIGNALED).setup_send().setup_sge(1, 10, 100);
        guard.construct_wr(2, SIGNALED).setup_write_imm(21, 22, 23).setup_sge(2, 20, 200);
        guard.construct_wr(3, WorkRequestFlags::Fence).setup_read(31, 32).setup_sge(3, 30, 300);
        guard.construct_wr(4, SIGNALED).setup_atomic_compare_swap(41, 48, 43, 44).setup_sge(4, 40, 8);
        guard.construct_wr(5, SIGNALED).setup_atomic_fetch_add(51, 56, 53).setup_sge(5, 50, 8);
        guard.construct_wr(6, SIGNALED).setup_send_inv(61).setup_sge(6, 60, 6);
    }
    guard.construct_wr(7, SIGNALED).setup_send_imm(7).setup_inline_data(b"sixteen bytes, 7");
    guard.finish().unwrap();
    world.recording.calls();
    let mut expected: Vec<Posted> = Vec::new();
    for round in 0..3 {
        post(send, &list).unwrap();
        let arrived = world.recording.posted();
        if round == 0 {
            assert_eq!(arrived.iter().map(|request| request.wr_id).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
            assert_eq!(arrived[1].entries, [(2, 20, 200)]);
            assert_eq!(arrived[6].inline.as_deref(), Some(&b"sixteen bytes, 7"[..]));
            expected = arrived;
        } else {
            assert_eq!(arrived, expected, "{round}");
        }
        // A batch between two posts does not change the list.
        let mut guard = send.start_post_send();
        guard.construct_wr(99, SIGNALED).setup_send().setup_inline_data(b"elsewhere");
        guard.post().unwrap();
        assert_eq!(numbers(&world), [99]);
        for (at, (mut request, expected)) in list.requests().zip(&mut expected).enumerate() {
            let number = 100 * (round + 1) + at as u64;
            request.set_wr_id(number).set_signaled(at == 2);
            expected.wr_id = number;
            expected.flags = if at == 2 { SIGNALED.bits() | WorkRequestFlags::Fence.bits() } else { 0 };
        }
        for (at, expected) in expected.iter_mut().enumerate().take(5).skip(1) {
            let addr = 0x1000 * (round + 1) + 8 * at as u64;
            list.request(at).unwrap().set_remote_addr(addr).unwrap();
            expected.remote_addr = addr;
        }
        for at in [1, 6] {
            list.request(at).unwrap().set_imm_data(0x0102_0300 + round as u32).unwrap();
            expected[at].imm_data = Some(0x0102_0300 + round as u32);
        }
    }
    assert_eq!(world.recording.verbs(), ["post_send"; 6]);
}

#[test]
fn setter_of_a_missing_field_is_refused() {
    let world = World::new();
    let mut qp = connected(&world);
    let (send, _) = qp.queues();
    let mut list = send.prepare(2).unwrap();
    let mut guard = list.build();
    guard.construct_wr(1, SIGNALED).setup_send_inv(5).setup_inline_data(b"x");
    guard.construct_wr(2, SIGNALED).setup_write(6, 7).setup_inline_data(b"x");
    guard.finish().unwrap();
    post(send, &list).unwrap();
    let before = world.recording.posted();
    refused(list.request(0).unwrap().set_remote_addr(1), "no remote address");
    refused(list.request(0).unwrap().set_imm_data(1), "no immediate data");
    refused(list.request(1).unwrap().set_imm_data(1), "no immediate data");
    assert!(list.request(2).is_none());
    post(send, &list).unwrap();
    assert_eq!(world.recording.posted(), before);
}

#[test]
fn remote_address_never_replaces_an_address_handle() {
    let world = World::new();
    let ah = handle(&world);
    let mut qp = datagrams(&world).build().unwrap();
    let (send, _) = qp.queues();
    let mut list = send.prepare(1).unwrap();
    let mut guard = list.build();
    guard.construct_wr(1, SIGNALED).setup_send().setup_ud_addr(&ah, 2, 3).setup_inline_data(b"x");
    guard.finish().unwrap();
    refused(list.request(0).unwrap().set_remote_addr(0xdead_0000), "no remote address");
    for _ in 0..2 {
        // SAFETY: the request names no registered memory.
        unsafe { send.post_prepared(&list).unwrap() };
        let arrived = world.recording.posted();
        assert!(matches!(arrived[0].datagram, Some((address, 2, 3)) if address != 0xdead_0000), "{arrived:?}");
    }
    assert_eq!(world.recording.violations(), [""; 0]);
    // A handle of another device is refused while the list is built.
    let other = World::new();
    let foreign = handle(&other);
    let mut guard = list.build();
    guard.construct_wr(8, SIGNALED).setup_send().setup_ud_addr(&foreign, 2, 3).setup_inline_data(b"x");
    let error = guard.finish().unwrap_err();
    assert_eq!((error.refusal(), error.failed_request().unwrap().wr_id), (Some(RefusalReason::OfAnotherDevice), 8));
}

#[test]
fn refused_post_names_the_request_and_keeps_the_list() {
    let world = World::new();
    let mut qp = connected(&world);
    let (send, _) = qp.queues();
    let mut list = writes(send, 4);
    for index in 0..4 {
        list.request(index).unwrap().set_wr_id(70 + index as u64);
        world.recording.refuse_requests(Bad::At(index), Failure::documented(libc::ENOMEM)).posted();
        let error = post(send, &list).unwrap_err();
        assert_eq!((error.kind(), error.posted()), (PostErrorKind::NotEnoughResources, Some(index)));
        let failed = error.failed_request().unwrap();
        assert_eq!((failed.index, failed.wr_id), (Some(index), 70 + index as u64));
        // This is the limit of the queue, not of the list.
        assert_eq!(error.queue_limit(), Some(8));
        assert_eq!(world.recording.posted().len(), index);
        post(send, &list).unwrap();
        assert_eq!(world.recording.posted().len(), 4);
    }
    for bad in [Bad::Null, Bad::Foreign, Bad::Behind] {
        world.recording.refuse_requests(bad, Failure::documented(libc::EINVAL));
        let error = post(send, &list).unwrap_err();
        assert_eq!((error.failed_request(), error.posted()), (None, None), "{bad:?}");
        world.recording.posted();
        post(send, &list).unwrap();
        assert_eq!(numbers(&world), [70, 71, 72, 73]);
    }
}

#[test]
fn unfinished_list_is_refused() {
    let world = World::new();
    let mut qp = connected(&world);
    let (send, _) = qp.queues();
    let mut list = send.prepare(2).unwrap();
    world.recording.calls();
    let mut is_refused = |list: &PreparedSends<'_>| {
        let error = post(send, list).unwrap_err();
        assert!(error.to_string().contains("the list has no requests; build"), "{error}");
        assert_eq!((error.failed_request(), error.posted()), (None, Some(0)));
        assert_eq!(world.recording.verbs(), [""; 0]);
    };
    is_refused(&list);
    list.build().finish().unwrap();
    is_refused(&list);
    let mut guard = list.build();
    guard.construct_wr(1, SIGNALED).setup_send().setup_inline_data(b"x");
    guard.post().unwrap();
    drop(list.build());
    is_refused(&list);
    // One request too many, and too much inline data.
    for (count, bytes, text) in [(3, 1, "prepared for fewer requests"), (1, 17, "17 bytes")] {
        let mut guard = list.build();
        for wr_id in 0..count {
            guard.construct_wr(wr_id, SIGNALED).setup_send().setup_inline_data(&vec![0; bytes]);
        }
        let error = guard.finish().unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
        is_refused(&list);
    }
    assert!(list.request(0).is_none());
    let mut guard = list.build();
    guard.construct_wr(5, SIGNALED).setup_send().setup_inline_data(b"x");
    guard.finish().unwrap();
    post(send, &list).unwrap();
    assert_eq!(numbers(&world), [5]);
}

#[test]
fn list_of_another_queue_is_refused() {
    let world = World::new();
    let (mut qp, mut other) = (connected(&world), connected(&world));
    let list = writes(qp.queues().0, 2);
    world.recording.calls();
    let error = post(other.queues().0, &list).unwrap_err();
    assert!(error.to_string().contains("prepared by another queue"), "{error}");
    assert_eq!(world.recording.verbs(), [""; 0]);
    post(qp.queues().0, &list).unwrap();
    assert_eq!(numbers(&world), [10, 11]);
}

#[test]
fn prepared_list_keeps_its_queue_pair_alive() {
    let world = World::new();
    let qp = connected(&world);
    let number = qp.qp_number();
    let (mut send, receive) = qp.split();
    let list = writes(&send, 1);
    // The list moves to another thread with its queue.
    let (send, list) = thread::scope(|scope| {
        scope
            .spawn(move || {
                post(&mut send, &list).unwrap();
                (send, list)
            })
            .join()
            .unwrap()
    });
    assert_eq!(numbers(&world), [10]);
    assert_eq!(send.qp_number(), number);
    let error = BasicQueuePair::join(send, receive).unwrap().close().unwrap_err();
    assert_eq!(error.errno().raw(), libc::EBUSY);
    assert!(!world.recording.verbs().contains(&"destroy_qp"));
    drop(list);
    assert_eq!(world.recording.verbs(), ["destroy_qp"]);
}

#[test]
fn too_many_requests_return_enomem() {
    let world = World::new();
    let mut qp = connected(&world);
    for requests in [usize::MAX, u32::MAX as usize] {
        let error = qp.queues().0.prepare(requests).unwrap_err();
        assert_eq!(error.errno().raw(), libc::ENOMEM);
        assert!(error.to_string().contains("no memory for"), "{error}");
    }
    let list = qp.queues().0.prepare(0).unwrap();
    assert!(post(qp.queues().0, &list).is_err());
}
