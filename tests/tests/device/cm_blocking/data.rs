//! Data, and the private data and parameters of both sides.

use std::error::Error;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::memory_region::RemoteKey;
use sideway::ibverbs::queue_pair::{BasicQueuePair, PostSendGuard, QueuePair, QueuePairState};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway::rdmacm::communication_manager::Identifier;
use sideway::rdmacm::{ConnectionParameter, Connector, Ended, Listener};
use sideway_tests::connections::{End, LONG, address};
use sideway_tests::loopback::{Give, Memory, Range};

use super::{connector, listener};

const SIZE: usize = 3000;
const FROM_ACTIVE: &[u8] = b"from the active side, into memory that the passive side named in its answer";

/// The memory that the peer may write: an address and a key.
fn place(memory: &Memory) -> Vec<u8> {
    [&memory.addr().to_be_bytes()[..], &u32::from(memory.rkey()).to_be_bytes()].concat()
}

fn passive(listener: &Listener) {
    let request = listener.accept(Some(LONG)).unwrap();
    assert_eq!(request.private_data().trimmed(), b"hello, peer?");
    assert_eq!(request.info().unwrap().private_data(), request.private_data());
    assert_eq!(request.local_address(), Some(listener.local_address()));
    assert!(!request.is_lookup());
    let mut end = End::of(request.identifier().clone());
    let memory = Memory::new(&end.pd, SIZE, AccessFlags::LocalWrite | AccessFlags::RemoteWrite);
    let mut receives = end.qp.start_post_recv();
    receives.construct_wr(1).give(Range::of(&memory, 0, 0));
    receives.post().unwrap();

    let mut parameter = ConnectionParameter::default();
    let connection = request.accept(parameter.setup_private_data(&place(&memory))).unwrap();
    assert_eq!(connection.info().private_data().trimmed(), b"hello, peer?");
    assert_eq!(end.success(), 1);
    let mut bytes = [0; FROM_ACTIVE.len()];
    memory.read(100, &mut bytes);
    assert_eq!(bytes, FROM_ACTIVE);
    assert_eq!(connection.wait(Some(LONG)).unwrap(), Ended::Disconnected);
    assert_eq!(connection.disconnect(Some(LONG)).unwrap(), Ended::Disconnected);
}

fn active(listener: &Listener, connector: &Connector) {
    let resolved = connector.resolve(listener.local_address()).unwrap();
    assert_eq!(resolved.peer_address(), listener.local_address());
    let mut end = End::of(resolved.identifier().clone());
    assert!(Arc::ptr_eq(resolved.device_context(), &end.context));
    let mut parameter = ConnectionParameter::default();
    let connection = resolved.connect(parameter.setup_private_data(b"hello, peer?")).unwrap();
    assert_eq!(connection.peer_address(), Some(listener.local_address()));
    let answer = connection.info().private_data();
    let (addr, rkey) = (u64::from_be_bytes(answer[..8].try_into().unwrap()), &answer[8..12]);
    let rkey = RemoteKey::from(u32::from_be_bytes(rkey.try_into().unwrap()));

    let mut memory = Memory::new(&end.pd, SIZE, AccessFlags::LocalWrite);
    memory.write(7, FROM_ACTIVE);
    let mut sends = end.qp.start_post_send();
    let range = Range::of(&memory, 7, FROM_ACTIVE.len());
    sends.construct_wr(2, WorkRequestFlags::empty()).setup_write(rkey, addr + 100).give(range);
    sends.construct_wr(3, WorkRequestFlags::Signaled).setup_send().give(Range::of(&memory, 0, 0));
    sends.post().unwrap();
    assert_eq!(end.success(), 3);
    assert!(!connection.is_ended());
    assert_eq!(connection.disconnect(Some(LONG)).unwrap(), Ended::Disconnected);
    assert!(connection.is_ended());
}

#[test]
fn two_threads_connect_and_one_writes_into_the_memory_of_the_other() {
    let (listener, connector) = (listener(), connector());
    thread::scope(|scope| {
        scope.spawn(|| active(&listener, &connector));
        passive(&listener);
    });
}

#[test]
fn twenty_clients_connect_to_a_listener_with_four_threads() {
    const ACTIVE: usize = 20;
    const SERVERS: usize = 4;
    // An emulated machine may lose a message under load; it is retransmitted only after seconds.
    const LONGER: Duration = Duration::from_secs(120);
    let listener = Listener::builder().setup_timeout(LONGER).bind((address(), 0)).unwrap();
    thread::scope(|scope| {
        let servers: Vec<_> = (0..SERVERS)
            .map(|_| {
                scope.spawn(|| {
                    (0..ACTIVE / SERVERS)
                        .map(|_| {
                            let request = listener.accept(Some(LONGER)).unwrap();
                            let name = request.private_data().trimmed().to_vec();
                            let end = End::of(request.identifier().clone());
                            let mut parameter = ConnectionParameter::default();
                            let connection = request.accept(parameter.setup_private_data(&name)).unwrap();
                            assert_eq!(connection.wait(Some(LONGER)).unwrap(), Ended::Disconnected);
                            connection.disconnect(Some(LONGER)).unwrap();
                            drop(end);
                        })
                        .count()
                })
            })
            .collect();
        for number in 1..=ACTIVE {
            let listener = &listener;
            scope.spawn(move || {
                let resolved = Connector::new().setup_timeout(LONGER).resolve(listener.local_address()).unwrap();
                let _end = End::of(resolved.identifier().clone());
                let name = format!("thread {number}");
                let mut parameter = ConnectionParameter::default();
                let connection = resolved.connect(parameter.setup_private_data(name.as_bytes())).unwrap();
                assert_eq!(connection.info().private_data().trimmed(), name.as_bytes());
                connection.disconnect(Some(LONGER)).unwrap();
            });
        }
        let served: usize = servers.into_iter().map(|server| server.join().unwrap()).sum();
        assert_eq!(served, ACTIVE);
    });
}

/// A queue pair without an identifier.
fn own(context: &Arc<DeviceContext>) -> BasicQueuePair {
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq_builder().build_generic().unwrap();
    pd.create_qp_builder().setup_send_cq(&cq).setup_recv_cq(&cq).build().unwrap()
}

/// Changes the queue pair's state with the identifier's attributes.
fn ready(id: &Arc<Identifier>, qp: &mut BasicQueuePair) -> Result<(), Box<dyn Error + Send + Sync>> {
    for state in [QueuePairState::Init, QueuePairState::ReadyToReceive, QueuePairState::ReadyToSend] {
        qp.modify(&id.get_qp_attr(state)?)?;
    }
    Ok(())
}

#[test]
fn programs_own_queue_pair_is_modified_by_the_program() {
    let listener = listener();
    thread::scope(|scope| {
        let passive = scope.spawn(|| {
            let request = listener.accept(Some(LONG)).unwrap();
            let mut qp = own(request.device_context());
            ready(request.identifier(), &mut qp).unwrap();
            let mut parameter = ConnectionParameter::default();
            let connection = request.accept(parameter.setup_qp_number(qp.qp_number())).unwrap();
            (connection.wait(Some(LONG)).unwrap(), connection.disconnect(Some(LONG)).unwrap())
        });
        let resolved = connector().resolve(listener.local_address()).unwrap();
        let mut qp = own(resolved.device_context());
        let mut parameter = ConnectionParameter::default();
        parameter.setup_qp_number(qp.qp_number());
        let connection = resolved.connect_with(&parameter, |id, _| ready(id, &mut qp)).unwrap();
        assert_eq!(qp.state(), QueuePairState::ReadyToSend);
        connection.disconnect(Some(LONG)).unwrap();
        assert_eq!(passive.join().unwrap(), (Ended::Disconnected, Ended::Disconnected));
    });
}
