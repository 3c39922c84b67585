//! Children of `fork`: what they have of their parent's device is of no use to them, a device that they open themselves works, and
//! the parent does not notice.

use std::mem::zeroed;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::child::{forked, is_alone};
use crate::common::{Setup, Side, close, open, pair};
use rdma_mummy_sys::*;

/// What threads share: the queue pairs, queues and memory are the device's, which any thread may use.
struct Shared<T>(T);

// SAFETY: the verbs may be called from any thread, and each side's buffer is touched by one thread at a time.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    fn get(&self) -> &T {
        &self.0
    }
}

fn send_once(sides: &mut [Side; 2], round: u8) {
    sides[0].buffer[..64].fill(round);
    let [left, right] = &*sides;
    right.receive(1, &mut [right.piece(100, 64)]);
    left.send(ibv_wr_opcode::IBV_WR_SEND, 2, &mut [left.piece(0, 64)], |_| {});
    left.done(2);
    right.done(1);
    assert_eq!(right.buffer[100..164], [round; 64]);
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Everything that a child tries with an object of its parent's fails.
fn check_inherited(side: &Side) {
    // SAFETY: the objects are there; zeros are a value of what is asked for.
    unsafe {
        let (context, qp) = ((*side.qp).context, side.qp);
        let mut wr: ibv_send_wr = zeroed();
        let mut bad = ptr::null_mut();
        assert_eq!(ibv_post_send(qp, &raw mut wr, &raw mut bad), libc::EIO);
        assert_eq!(bad, &raw mut wr);
        let mut wr: ibv_recv_wr = zeroed();
        let mut bad = ptr::null_mut();
        assert_eq!(ibv_post_recv(qp, &raw mut wr, &raw mut bad), libc::EIO);
        let mut wc: ibv_wc = zeroed();
        assert!(ibv_poll_cq((*qp).send_cq, 1, &raw mut wc) < 0);
        assert!(ibv_alloc_pd(context).is_null() && errno() == libc::EIO);
        assert_eq!(ibv_req_notify_cq((*qp).send_cq, 0), libc::EIO);
        let mut attr: ibv_qp_attr = zeroed();
        assert_eq!(ibv_modify_qp(qp, &raw mut attr, 1), libc::EIO);
        let mut gid: ibv_gid = zeroed();
        assert_eq!((ibv_query_gid(context, 1, 0, &raw mut gid), errno()), (-1, libc::EIO));
        assert_eq!(ibv_destroy_qp(qp), libc::EIO);
        assert_eq!((ibv_close_device(context), errno()), (-1, libc::EIO));
    }
}

#[test]
fn a_child_opens_devices_anew_while_the_threads_of_its_parent_go_on() {
    let is_done = AtomicBool::new(false);
    let context = Shared(open(c"soft0"));
    thread::scope(|scope| {
        let busy = [1, 2].map(|number| {
            let (context, is_done) = (&context, &is_done);
            scope.spawn(move || {
                // On the device that the other thread has as well: their locks are held nearly always.
                let mut rounds = 0_u64;
                while !is_done.load(Ordering::Relaxed) {
                    let mut sides = pair(*context.get(), Setup::default());
                    (0..20).for_each(|_| send_once(&mut sides, number));
                    sides.into_iter().for_each(Side::close);
                    rounds += 1;
                }
                rounds
            })
        });
        let sides = pair(*context.get(), Setup::default());
        let statuses = [(); 30].map(|()| {
            forked(|| {
                check_inherited(&sides[0]);
                let mut own = pair(open(c"soft0"), Setup::default());
                (0..10).for_each(|round| send_once(&mut own, round));
                // And a wait, for which the device has a thread.
                let [left, right] = &own;
                left.send(ibv_wr_opcode::IBV_WR_SEND, 2, &mut [left.piece(0, 64)], |_| {});
                right.receive(1, &mut [right.piece(0, 64)]);
                left.done(2);
                right.done(1);
                // A grandchild is no different.
                assert_eq!(forked(|| check_inherited(&own[0])), 0);
                close(own);
            })
        });
        is_done.store(true, Ordering::Relaxed);
        assert_eq!(statuses, [0; 30]);
        for thread in busy {
            assert!(thread.join().expect("the parent's threads go on") > 0);
        }
        sides.into_iter().for_each(Side::close);
    });
    // SAFETY: nothing is on it any more.
    assert_eq!(unsafe { ibv_close_device(*context.get()) }, 0);
}

#[test]
fn programs_are_started_beside_open_devices() {
    let mut sides = pair(open(c"soft0"), Setup::default());
    for round in 0..10 {
        send_once(&mut sides, round);
        assert!(Command::new("true").status().expect("it starts").success());
        // SAFETY: the command is a string of C.
        assert_eq!(unsafe { libc::system(c"exit 3".as_ptr()) } >> 8, 3);
    }
    close(sides);
}

#[test]
fn preparing_for_fork_is_nothing_and_succeeds() {
    let context = open(c"soft0");
    // SAFETY: the context is open; it is closed at the end.
    unsafe {
        assert_eq!(ibv_fork_init(), 0);
        assert_ne!(ibv_is_fork_initialized(), ibv_fork_status::IBV_FORK_DISABLED);
        assert_eq!(ibv_close_device(context), 0);
    }
}

/// Everything that a child tries with an event channel and identifiers of its parent's fails.
fn check_inherited_connection(channel: *mut rdma_event_channel, listener: *mut rdma_cm_id, active: *mut rdma_cm_id) {
    // SAFETY: the objects are there; zeros are a value of what is asked for.
    unsafe {
        let failed = |result: i32| assert_eq!((result, errno()), (-1, libc::EIO));
        let mut event = ptr::null_mut();
        failed(rdma_get_cm_event(channel, &raw mut event));
        let mut id = ptr::null_mut();
        failed(rdma_create_id(channel, &raw mut id, ptr::null_mut(), rdma_port_space::RDMA_PS_TCP));
        failed(rdma_listen(listener, 1));
        failed(rdma_resolve_route(active, 1000));
        failed(rdma_disconnect(active));
        failed(rdma_migrate_id(active, ptr::null_mut()));
        failed(rdma_destroy_id(active));
        failed(rdma_destroy_id(listener));
        rdma_destroy_event_channel(channel);
    }
}

/// An event channel with one who listens at 127.0.0.1, and the port in network byte order.
fn listening() -> (*mut rdma_event_channel, *mut rdma_cm_id, u16) {
    // SAFETY: the objects are alive, and the address can be read.
    unsafe {
        let channel = rdma_create_event_channel();
        assert!(!channel.is_null());
        let mut listener = ptr::null_mut();
        assert_eq!(rdma_create_id(channel, &raw mut listener, ptr::null_mut(), rdma_port_space::RDMA_PS_TCP), 0);
        let mut at = loopback(0);
        assert_eq!(rdma_bind_addr(listener, (&raw mut at).cast()), 0);
        assert_eq!(rdma_listen(listener, 8), 0);
        (channel, listener, rdma_get_src_port(listener))
    }
}

fn loopback(port: u16) -> libc::sockaddr_in {
    // SAFETY: numbers alone.
    let mut address: libc::sockaddr_in = unsafe { zeroed() };
    address.sin_family = libc::AF_INET as u16;
    address.sin_port = port;
    address.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
    address
}

/// One that has found the address.
fn resolved(channel: *mut rdma_event_channel, port: u16) -> *mut rdma_cm_id {
    // SAFETY: the objects are alive, and the event is acknowledged once.
    unsafe {
        let (mut id, mut event, mut to) = (ptr::null_mut(), ptr::null_mut(), loopback(port));
        assert_eq!(rdma_create_id(channel, &raw mut id, ptr::null_mut(), rdma_port_space::RDMA_PS_TCP), 0);
        assert_eq!(rdma_resolve_addr(id, ptr::null_mut(), (&raw mut to).cast(), 1000), 0);
        assert_eq!(rdma_get_cm_event(channel, &raw mut event), 0);
        assert_eq!((*event).event, rdma_cm_event_type::RDMA_CM_EVENT_ADDR_RESOLVED);
        assert_eq!(rdma_ack_cm_event(event), 0);
        id
    }
}

#[test]
fn a_child_begins_with_no_connections_by_address_while_the_threads_of_its_parent_go_on() {
    use rdma_mummy_sys::load::provider::ProviderId;
    use rdma_mummy_sys::load::rdmacm::{Choice, choose};
    softrnic::register().expect("there is a device");
    choose(Choice::Provider(ProviderId::by_name("softrnic").expect("it is registered")));
    let is_done = AtomicBool::new(false);
    let (channel, listener, port) = listening();
    let active = resolved(channel, port);
    thread::scope(|scope| {
        let is_done = &is_done;
        // The lock of all that is known is held nearly always.
        let busy = scope.spawn(move || {
            let (channel, listener, port) = listening();
            let mut rounds = 0_u64;
            while !is_done.load(Ordering::Relaxed) {
                // SAFETY: it is alive, and not used any more.
                assert_eq!(unsafe { rdma_destroy_id(resolved(channel, port)) }, 0);
                rounds += 1;
            }
            // SAFETY: it is alive, and not used any more.
            assert_eq!(unsafe { rdma_destroy_id(listener) }, 0);
            rounds
        });
        let statuses = [(); 20].map(|()| {
            forked(|| {
                check_inherited_connection(channel, listener, active);
                let (own, _, at) = listening();
                resolved(own, at);
                // The parent's listener is found from here as from any process.
                resolved(own, port);
            })
        });
        is_done.store(true, Ordering::Relaxed);
        assert_eq!(statuses, [0; 20]);
        assert!(busy.join().expect("the parent's thread goes on") > 0);
    });
    // SAFETY: they are alive, and not used any more.
    unsafe {
        assert_eq!(rdma_destroy_id(active), 0);
        assert_eq!(rdma_destroy_id(listener), 0);
        rdma_destroy_event_channel(channel);
    }
}

#[test]
fn what_a_child_copies_to_its_parents_device_and_acknowledges_does_not_arrive() {
    let context = open(c"soft0");
    // SAFETY: the objects are alive, the bytes are there, and the mutex is let go by who holds it.
    unsafe {
        let mut attr: ibv_alloc_dm_attr = zeroed();
        attr.length = 64;
        let dm = ibv_alloc_dm(context, &raw mut attr);
        let cq = ibv_create_cq(context, 1, ptr::null_mut(), ptr::null_mut(), 0);
        assert!(!dm.is_null() && !cq.is_null());
        assert_eq!(ibv_memcpy_to_dm(dm, 0, [7_u8; 64].as_ptr().cast(), 64), 0);
        // As another thread may hold it, which a child has not.
        assert_eq!(libc::pthread_mutex_lock(&raw mut (*cq).mutex), 0);
        let status = forked(|| {
            let mut bytes = [9_u8; 64];
            assert_eq!(ibv_memcpy_to_dm(dm, 0, bytes.as_ptr().cast(), 64), libc::EIO);
            assert_eq!(ibv_memcpy_from_dm(bytes.as_mut_ptr().cast(), dm, 0, 64), libc::EIO);
            assert_eq!(bytes, [9; 64]);
            let mut event: ibv_async_event = zeroed();
            event.event_type = ibv_event_type::IBV_EVENT_CQ_ERR;
            event.element.cq = cq;
            ibv_ack_async_event(&raw mut event);
            assert_eq!((*cq).async_events_completed, 0);
        });
        assert_eq!(libc::pthread_mutex_unlock(&raw mut (*cq).mutex), 0);
        assert_eq!(status, 0);
        assert_eq!((ibv_destroy_cq(cq), ibv_free_dm(dm), ibv_close_device(context)), (0, 0, 0));
    }
}

#[test]
fn a_child_has_as_many_objects_as_any_process() {
    softrnic::register().expect("there is a device");
    // The first child's are its parent's in the second; so many objects are of nobody else's concern there.
    let status = forked(|| {
        let context = open(c"soft0");
        // SAFETY: the context is open; the process ends with it.
        unsafe {
            while !ibv_alloc_pd(context).is_null() {}
            assert_eq!(errno(), libc::ENOMEM);
            let own = forked(|| assert!(!ibv_alloc_pd(open(c"soft0")).is_null()));
            assert_eq!(own, 0);
        }
    });
    assert_eq!(status, 0);
}

/// The sockets that the connection manager and `ipc` have.
fn sockets() -> Vec<i32> {
    (0..1024)
        .filter(|&descriptor| {
            let (mut kind, mut length) = (0_i32, size_of::<i32>() as libc::socklen_t);
            let room = (&raw mut kind).cast();
            // SAFETY: there is room for a number.
            let found = unsafe { libc::getsockopt(descriptor, libc::SOL_SOCKET, libc::SO_TYPE, room, &raw mut length) };
            found == 0 && kind == libc::SOCK_SEQPACKET
        })
        .collect()
}

#[test]
fn no_socket_stays_open_in_a_child_that_was_made_or_closed_while_it_was_forked() {
    // Other tests have sockets of their own.
    if !is_alone("fork::no_socket_stays_open_in_a_child_that_was_made_or_closed_while_it_was_forked") {
        return;
    }
    use rdma_mummy_sys::load::provider::ProviderId;
    use rdma_mummy_sys::load::rdmacm::{Choice, choose};
    softrnic::register().expect("there is a device");
    choose(Choice::Provider(ProviderId::by_name("softrnic").expect("it is registered")));
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let is_done = &is_done;
        for _ in 0..2 {
            scope.spawn(move || {
                while !is_done.load(Ordering::Relaxed) {
                    let (channel, listener, _) = listening();
                    // SAFETY: they are alive, and not used any more.
                    unsafe {
                        assert_eq!(rdma_destroy_id(listener), 0);
                        rdma_destroy_event_channel(channel);
                    }
                }
            });
        }
        let statuses = [(); 300].map(|()| forked(|| assert_eq!(sockets(), [0; 0])));
        is_done.store(true, Ordering::Relaxed);
        assert_eq!(statuses, [0; 300]);
    });
}
