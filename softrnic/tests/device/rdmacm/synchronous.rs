//! Identifiers without a channel, whose calls wait for their events.

use super::*;

/// Returns an identifier that listens, and its port.
fn listening() -> (*mut rdma_cm_id, u16) {
    let mut id = ptr::null_mut();
    // SAFETY: the identifier is alive.
    unsafe {
        assert_eq!(rdma_create_id(ptr::null_mut(), &raw mut id, ptr::null_mut(), TCP), 0);
        bind(id, here(0)).unwrap();
        assert_eq!(rdma_listen(id, 0), 0);
        (id, u16::from_be(rdma_get_src_port(id)))
    }
}

/// Returns an identifier with a route to a port of this host.
fn resolved(port: u16) -> *mut rdma_cm_id {
    let (mut id, mut to) = (ptr::null_mut(), here(port));
    // SAFETY: the identifier is alive, and the address is readable.
    unsafe {
        assert_eq!(rdma_create_id(ptr::null_mut(), &raw mut id, ptr::null_mut(), TCP), 0);
        assert_eq!(rdma_resolve_addr(id, ptr::null_mut(), (&raw mut to).cast(), 1000), 0);
        assert_eq!(rdma_resolve_route(id, 1000), 0);
    }
    id
}

#[test]
fn identifiers_without_channel_have_synchronous_calls() {
    drop(Channel::new());
    let (listener, port) = listening();
    // SAFETY: all identifiers are alive until they are destroyed, and the addresses are readable.
    unsafe {
        let client = std::thread::spawn(move || {
            let id = resolved(port);
            assert_eq!(
                (connect(id, b""), (*(*id).event).event),
                (Err(libc::ECONNREFUSED), event_type::RDMA_CM_EVENT_REJECTED)
            );
            destroy(id);
        });
        let mut request = ptr::null_mut();
        assert_eq!(rdma_get_request(listener, &raw mut request), 0);
        assert_eq!(rdma_reject(request, ptr::null(), 0), 0);
        client.join().unwrap();
        destroy(request);
    }
    destroy(listener);
}

/// An XRC queue pair that receives has no protection domain, but its shared receive queue needs one.
#[test]
fn shared_receive_queue_takes_the_domain_of_its_identifier() {
    drop(Channel::new());
    let mut address = here(0);
    // SAFETY: all identifiers are alive until they are destroyed, zeros are valid for the attributes, and the addresses
    // are readable.
    unsafe {
        let mut info: rdma_addrinfo = mem::zeroed();
        (info.ai_flags, info.ai_family) = (RAI_PASSIVE as c_int, libc::AF_INET);
        (info.ai_qp_type, info.ai_port_space) =
            (ibv_qp_type::IBV_QPT_XRC_RECV.0 as c_int, rdma_port_space::RDMA_PS_IB.0 as c_int);
        (info.ai_src_addr, info.ai_src_len) = ((&raw mut address).cast(), size_of::<sockaddr_in>() as u32);
        let mut id = ptr::null_mut();
        assert_eq!(rdma_create_ep(&raw mut id, &raw mut info, ptr::null_mut(), ptr::null_mut()), 0, "{}", errno());
        assert!(!(*id).pd.is_null());
        let mut attr: ibv_qp_init_attr = mem::zeroed();
        attr.qp_type = ibv_qp_type::IBV_QPT_XRC_RECV;
        assert_eq!(rdma_create_qp(id, ptr::null_mut(), &raw mut attr), 0, "{}", errno());
        let mut attr: ibv_srq_init_attr = mem::zeroed();
        (attr.attr.max_wr, attr.attr.max_sge) = (1, 1);
        assert_eq!(rdma_create_srq(id, ptr::null_mut(), &raw mut attr), 0, "{}", errno());
        assert_eq!((*(*id).srq).pd, (*id).pd);
        rdma_destroy_ep(id);
    }
}

/// The rsockets of rdma-core do so.
#[test]
fn program_takes_the_events_of_identifiers_without_channel() {
    drop(Channel::new());
    let (listener, port) = listening();
    // SAFETY: all identifiers are alive until they are destroyed, and the addresses are readable.
    unsafe {
        let client = std::thread::spawn(move || {
            let id = resolved(port);
            create_one_queue(id);
            connect(id, b"").unwrap();
            acknowledge_own(id);
            assert_eq!(rdma_disconnect(id), 0);
            rdma_destroy_qp(id);
            destroy(id);
        });
        let mut request = ptr::null_mut();
        assert_eq!(rdma_get_request(listener, &raw mut request), 0);
        create_one_queue(request);
        let mut accepted = parameters(b"");
        assert_eq!(rdma_accept(request, &raw mut accepted), 0);
        acknowledge_own(request);
        let mut event = ptr::null_mut();
        assert_eq!(rdma_get_cm_event((*request).channel, &raw mut event), 0, "{}", errno());
        assert_eq!((*event).event, event_type::RDMA_CM_EVENT_DISCONNECTED);
        assert_eq!(rdma_ack_cm_event(event), 0);
        assert_eq!(rdma_disconnect(request), 0);
        client.join().unwrap();
        rdma_destroy_qp(request);
        assert!((*request).recv_cq.is_null() && (*request).send_cq.is_null());
        destroy(request);
    }
    destroy(listener);
}

/// Non-blocking rsockets of rdma-core do so.
#[test]
fn calls_do_not_wait_if_the_descriptor_is_nonblocking() {
    drop(Channel::new());
    let (listener, port) = listening();
    let id = resolved(port);
    // SAFETY: all identifiers are alive until they are destroyed.
    unsafe {
        create_one_queue(id);
        let fd = (*(*id).channel).fd;
        assert_eq!(libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK), 0);
        assert_eq!(connect(id, b""), Err(libc::EAGAIN));
        let mut request = ptr::null_mut();
        assert_eq!(rdma_get_request(listener, &raw mut request), 0);
        create_one_queue(request);
        let accepting = std::thread::spawn({
            let request = request.expose_provenance();
            move || {
                let mut accepted = parameters(b"");
                rdma_accept(ptr::with_exposed_provenance_mut(request), &raw mut accepted)
            }
        });
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        assert_eq!(libc::poll(&raw mut poll, 1, TIMEOUT), 1);
        let mut event = ptr::null_mut();
        assert_eq!(rdma_get_cm_event((*id).channel, &raw mut event), 0, "{}", errno());
        assert_eq!(((*event).event, (*event).status), (event_type::RDMA_CM_EVENT_ESTABLISHED, 0));
        assert_eq!(rdma_ack_cm_event(event), 0);
        assert_eq!(accepting.join().unwrap(), 0);
        for id in [id, request] {
            rdma_destroy_qp(id);
            destroy(id);
        }
    }
    destroy(listener);
}

/// Creates a QP with one completion queue, which the fields of both queues contain.
///
/// # Safety
///
/// The identifier has a device and no QP.
unsafe fn create_one_queue(id: *mut rdma_cm_id) {
    // SAFETY: guaranteed by the caller; the attributes consist of numbers and nullable pointers.
    unsafe {
        let cq = ibv_create_cq((*id).verbs, 8, ptr::null_mut(), ptr::null_mut(), 0);
        assert!(!cq.is_null());
        ((*id).send_cq, (*id).recv_cq) = (cq, cq);
        let mut attr: ibv_qp_init_attr = mem::zeroed();
        attr.qp_type = ibv_qp_type::IBV_QPT_RC;
        attr.cap = ibv_qp_cap { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
        assert_eq!(rdma_create_qp(id, ptr::null_mut(), &raw mut attr), 0, "{}", errno());
    }
}

/// Acknowledges the event that a synchronous call has stored in the identifier.
///
/// # Safety
///
/// The identifier has such an event.
unsafe fn acknowledge_own(id: *mut rdma_cm_id) {
    // SAFETY: guaranteed by the caller.
    unsafe { assert_eq!(rdma_ack_cm_event(mem::replace(&mut (*id).event, ptr::null_mut())), 0) };
}
