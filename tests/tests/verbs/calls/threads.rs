//! Which types are `Send`, and posting from two threads.

use std::thread;

use sideway::error::{Errno, VerbError};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::{AddressHandle, AddressHandleAttribute, Gid, GidEntry};
use sideway::ibverbs::completion::{
    BasicCompletionQueue, BasicPoller, CompletionChannel, CompletionEvent, CompletionQueueBuilder,
    ExtendedCompletionQueue, ExtendedPoller, ExtendedWorkCompletion, GenericCompletionQueue, PollCompletionQueueError,
};
use sideway::ibverbs::device::{Device, DeviceList, DeviceListIter, GetDeviceListError, OpenDeviceError};
use sideway::ibverbs::device_context::{DeviceAttr, DeviceContext, PortAttr};
use sideway::ibverbs::memory_region::MemoryRegion;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{
    BasicQueuePair, BasicSendQueue, Datagram, ExtendedPostSendGuard, ExtendedQueuePair, ExtendedSendQueue,
    GenericPostSendGuard, GenericQueuePair, GenericSendQueue, ModifyQueuePairError, PostSendGuard, QueuePair,
    QueuePairAttribute, QueuePairBuilder, ReceiveQueue, SendQueue, Xrc,
};
use sideway::ibverbs::work_request::{PostError, ScatterGatherEntry, WorkRequestFlags};
use sideway_tests::recording::World;

const fn send_and_sync<T: Send + Sync>() {}

const _: () = {
    send_and_sync::<DeviceList>();
    send_and_sync::<DeviceListIter<'static>>();
    send_and_sync::<Device<'static>>();
    send_and_sync::<DeviceContext>();
    send_and_sync::<(DeviceAttr, PortAttr, Gid, GidEntry, AccessFlags, AddressHandleAttribute)>();
    send_and_sync::<ProtectionDomain>();
    send_and_sync::<MemoryRegion>();
    send_and_sync::<CompletionQueueBuilder>();
    send_and_sync::<(CompletionChannel, CompletionEvent)>();
    send_and_sync::<(BasicCompletionQueue, ExtendedCompletionQueue, GenericCompletionQueue)>();
    send_and_sync::<BasicPoller<'static>>();
    send_and_sync::<QueuePairBuilder>();
    send_and_sync::<(BasicQueuePair, ExtendedQueuePair, GenericQueuePair)>();
    send_and_sync::<(BasicSendQueue, ExtendedSendQueue, GenericSendQueue, ReceiveQueue)>();
    send_and_sync::<(QueuePairBuilder<Datagram>, QueuePairBuilder<Xrc>, AddressHandle)>();
    send_and_sync::<(BasicQueuePair<Datagram>, ExtendedQueuePair<Datagram>, GenericQueuePair<Datagram>)>();
    send_and_sync::<(BasicSendQueue<Xrc>, ExtendedSendQueue<Xrc>)>();
    send_and_sync::<(QueuePairAttribute, ScatterGatherEntry, WorkRequestFlags)>();
    send_and_sync::<(Errno, VerbError, PostError, PollCompletionQueueError, ModifyQueuePairError)>();
    send_and_sync::<(GetDeviceListError, OpenDeviceError)>();
};

/// Compiles only for types that are not `Send`, because otherwise the choice of the implementation is ambiguous.
macro_rules! not_send {
    ($($Type:ty),+ $(,)?) => { $( const _: fn() = || {
        trait AmbiguousIfSend<A> {
            fn item() {}
        }
        impl<T: ?Sized> AmbiguousIfSend<()> for T {}
        impl<T: ?Sized + Send> AmbiguousIfSend<u8> for T {}
        <$Type as AmbiguousIfSend<_>>::item()
    }; )+ };
}

// Drivers hold a lock from the start to the end of a batch, which the same thread must release.
not_send!(ExtendedPoller<'static>, ExtendedWorkCompletion<'static>, ExtendedPostSendGuard<'static>);
not_send!(ExtendedPostSendGuard<'static, Datagram>, GenericPostSendGuard<'static, Xrc>);

#[test]
fn one_thread_sends_while_another_receives() {
    const MESSAGES: u64 = 1000;
    let world = World::new();
    for qp in world.queue_pairs() {
        let (mut send, mut recv) = qp.split();
        thread::scope(|scope| {
            scope.spawn(move || {
                for wr_id in 0..MESSAGES {
                    let mut guard = send.start_post_send();
                    guard.construct_wr(wr_id, WorkRequestFlags::empty()).setup_send().setup_inline_data(b"x");
                    guard.post().unwrap();
                }
            });
            scope.spawn(move || {
                for wr_id in 0..MESSAGES {
                    let mut guard = recv.start_post_recv();
                    guard.construct_wr(MESSAGES + wr_id).setup_no_data();
                    guard.post().unwrap();
                }
            });
        });
        let posted = world.recording.posted();
        let sends: Vec<_> = posted.iter().filter(|request| request.opcode.is_some()).map(|one| one.wr_id).collect();
        assert_eq!(sends, (0..MESSAGES).collect::<Vec<_>>());
        assert_eq!(posted.len() as u64, 2 * MESSAGES);
    }
    world.end();
}

#[test]
fn both_queues_can_be_lent_at_once() {
    let world = World::new();
    let mut qp = world.qp_builder().build_ex().unwrap();
    let (send, recv) = qp.queues();
    let mut sends = send.start_post_send();
    let mut receives = recv.start_post_recv();
    receives.construct_wr(1).setup_no_data();
    sends.construct_wr(2, WorkRequestFlags::Signaled).setup_send().setup_inline_data(b"x");
    receives.post().unwrap();
    sends.post().unwrap();
    assert_eq!(world.recording.posted().len(), 2);
    assert_eq!(qp.qp_number(), qp.qp_number());
}

#[test]
fn queues_are_polled_from_threads_of_their_own() {
    let World { mut send_cq, mut recv_cq, recording, .. } = World::new();
    for _ in 0..100 {
        recording.complete(&send_cq, Default::default()).complete(&recv_cq, Default::default());
    }
    let drain = |cq: &mut GenericCompletionQueue| {
        let mut taken = 0;
        while let Ok(mut poller) = cq.start_poll() {
            while poller.next().unwrap().is_some() {
                taken += 1;
            }
        }
        taken
    };
    thread::scope(|scope| {
        let threads = [scope.spawn(|| drain(&mut send_cq)), scope.spawn(|| drain(&mut recv_cq))];
        assert_eq!(threads.map(|thread| thread.join().unwrap()), [100, 100]);
    });
}
