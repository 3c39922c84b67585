//! Tests of children of `fork`. Calls on objects of the parent fail in the child, devices that the child opens work,
//! and the parent is not affected.

use std::mem::zeroed;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::child::{forked, is_alone};
use crate::common::{Setup, Side, close, open, pair, register};
use rdma_mummy_sys::*;

/// Objects that several threads share. Any thread may use the QPs, the queues and the memory of the device.
struct Shared<T>(T);

// SAFETY: the verbs can be called from any thread, and one thread at a time accesses each side's buffer.
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

/// Asserts that all verbs fail in a child on an object of its parent.
fn check_inherited(side: &Side) {
    // SAFETY: the objects exist; zeros are valid for the requests.
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
fn child_opens_devices_while_its_parents_threads_continue() {
    let is_done = AtomicBool::new(false);
    let context = Shared(open(c"soft0"));
    thread::scope(|scope| {
        let busy = [1, 2].map(|number| {
            let (context, is_done) = (&context, &is_done);
            scope.spawn(move || {
                // This thread uses the same device as the other thread, so that its locks are nearly always held.
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
                // The send is posted before the receive, so the thread of the child must retry the send.
                let [left, right] = &own;
                left.send(ibv_wr_opcode::IBV_WR_SEND, 2, &mut [left.piece(0, 64)], |_| {});
                right.receive(1, &mut [right.piece(0, 64)]);
                left.done(2);
                right.done(1);
                // A grandchild behaves in the same way.
                assert_eq!(forked(|| check_inherited(&own[0])), 0);
                close(own);
            })
        });
        is_done.store(true, Ordering::Relaxed);
        assert_eq!(statuses, [0; 30]);
        for thread in busy {
            assert!(thread.join().expect("the parent's threads continue") > 0);
        }
        sides.into_iter().for_each(Side::close);
    });
    // SAFETY: the device has no objects left.
    assert_eq!(unsafe { ibv_close_device(*context.get()) }, 0);
}

#[test]
fn programs_can_be_started_with_open_devices() {
    let mut sides = pair(open(c"soft0"), Setup::default());
    for round in 0..10 {
        send_once(&mut sides, round);
        assert!(Command::new("true").status().expect("it starts").success());
        // SAFETY: the command is a C string.
        assert_eq!(unsafe { libc::system(c"exit 3".as_ptr()) } >> 8, 3);
    }
    close(sides);
}

#[test]
fn fork_init_succeeds() {
    let context = open(c"soft0");
    // SAFETY: the context is open, and is closed at the end.
    unsafe {
        assert_eq!(ibv_fork_init(), 0);
        assert_ne!(ibv_is_fork_initialized(), ibv_fork_status::IBV_FORK_DISABLED);
        assert_eq!(ibv_close_device(context), 0);
    }
}

/// Asserts that all functions fail in a child on an event channel and identifiers of its parent.
fn check_inherited_connection(channel: *mut rdma_event_channel, listener: *mut rdma_cm_id, active: *mut rdma_cm_id) {
    // SAFETY: the objects exist; zeros are valid for the requests.
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

/// Creates an event channel with a listener at 127.0.0.1. Also returns the port in network byte order.
fn listening() -> (*mut rdma_event_channel, *mut rdma_cm_id, u16) {
    // SAFETY: the objects are alive, and the address is readable.
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
    // SAFETY: the type has only numbers, for which zero is valid.
    let mut address: libc::sockaddr_in = unsafe { zeroed() };
    address.sin_family = libc::AF_INET as u16;
    address.sin_port = port;
    address.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
    address
}

/// Creates an identifier, and resolves its address.
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
fn child_starts_without_cm_objects_while_its_parents_threads_continue() {
    use rdma_mummy_sys::load::provider::ProviderId;
    use rdma_mummy_sys::load::rdmacm::{Choice, choose};
    register();
    choose(Choice::Provider(ProviderId::by_name("softrnic").expect("it is registered")));
    let is_done = AtomicBool::new(false);
    let (channel, listener, port) = listening();
    let active = resolved(channel, port);
    thread::scope(|scope| {
        let is_done = &is_done;
        // The lock of the connection manager is nearly always held.
        let busy = scope.spawn(move || {
            let (channel, listener, port) = listening();
            let mut rounds = 0_u64;
            while !is_done.load(Ordering::Relaxed) {
                // SAFETY: the identifier is alive, and no longer used.
                assert_eq!(unsafe { rdma_destroy_id(resolved(channel, port)) }, 0);
                rounds += 1;
            }
            // SAFETY: the listener is alive, and no longer used.
            assert_eq!(unsafe { rdma_destroy_id(listener) }, 0);
            rounds
        });
        let statuses = [(); 20].map(|()| {
            forked(|| {
                check_inherited_connection(channel, listener, active);
                let (own, _, at) = listening();
                resolved(own, at);
                // The child can find the listener of the parent, as any other process can.
                resolved(own, port);
            })
        });
        is_done.store(true, Ordering::Relaxed);
        assert_eq!(statuses, [0; 20]);
        assert!(busy.join().expect("the parent's thread continues") > 0);
    });
    // SAFETY: the objects are alive, and no longer used.
    unsafe {
        assert_eq!(rdma_destroy_id(active), 0);
        assert_eq!(rdma_destroy_id(listener), 0);
        rdma_destroy_event_channel(channel);
    }
}

#[test]
fn child_cannot_change_its_parents_device_memory_and_events() {
    let context = open(c"soft0");
    // SAFETY: the objects are alive, the bytes exist, and the holder of the mutex releases it.
    unsafe {
        let mut attr: ibv_alloc_dm_attr = zeroed();
        attr.length = 64;
        let dm = ibv_alloc_dm(context, &raw mut attr);
        let cq = ibv_create_cq(context, 1, ptr::null_mut(), ptr::null_mut(), 0);
        assert!(!dm.is_null() && !cq.is_null());
        assert_eq!(ibv_memcpy_to_dm(dm, 0, [7_u8; 64].as_ptr().cast(), 64), 0);
        // This simulates a lock that another thread held, which does not exist in the child.
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
fn child_has_its_own_object_limits() {
    register();
    // The outer child is the parent under test, so that its objects do not disturb other tests.
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

/// Returns the sockets of the connection manager and of `ipc`.
fn sockets() -> Vec<i32> {
    (0..1024)
        .filter(|&descriptor| {
            let (mut kind, mut length) = (0_i32, size_of::<i32>() as libc::socklen_t);
            let buffer = (&raw mut kind).cast();
            // SAFETY: the kernel writes one number, for which space exists.
            let found =
                unsafe { libc::getsockopt(descriptor, libc::SOL_SOCKET, libc::SO_TYPE, buffer, &raw mut length) };
            found == 0 && kind == libc::SOCK_SEQPACKET
        })
        .collect()
}

#[test]
fn socket_opened_or_closed_during_a_fork_is_closed_in_the_child() {
    // Other tests have sockets of their own.
    if !is_alone("fork::socket_opened_or_closed_during_a_fork_is_closed_in_the_child") {
        return;
    }
    use rdma_mummy_sys::load::provider::ProviderId;
    use rdma_mummy_sys::load::rdmacm::{Choice, choose};
    register();
    choose(Choice::Provider(ProviderId::by_name("softrnic").expect("it is registered")));
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let is_done = &is_done;
        for _ in 0..2 {
            scope.spawn(move || {
                while !is_done.load(Ordering::Relaxed) {
                    let (channel, listener, _) = listening();
                    // SAFETY: the objects are alive, and no longer used.
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
