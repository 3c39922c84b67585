//! What the connection manager reports of faults of its devices.

use super::*;
use crate::child::is_alone;

fn command(text: &str) {
    let command: softrnic::control::Command = text.parse().unwrap();
    assert_eq!(command.run(), Ok(()), "{text}");
}

/// Connects two identifiers with QPs.
fn connected(sides: &[Channel; 2], port: u16) -> [*mut rdma_cm_id; 2] {
    let active = sides[0].resolved(TCP, port);
    stream::create_qp(active, 2);
    connect(active, b"").unwrap();
    let passive = sides[1].expect(event_type::RDMA_CM_EVENT_CONNECT_REQUEST).id;
    stream::create_qp(passive, 2);
    let mut parameters = parameters(b"");
    // SAFETY: the identifier is alive, and the parameters are readable.
    assert_eq!(unsafe { rdma_accept(passive, &raw mut parameters) }, 0, "{}", errno());
    sides[0].expect(event_type::RDMA_CM_EVENT_ESTABLISHED);
    sides[1].expect(event_type::RDMA_CM_EVENT_ESTABLISHED);
    [active, passive]
}

fn request_waits(device: &str) {
    softrnic::Builder::new().device(device).register().unwrap();
    let sides = [Channel::new(), Channel::new()];
    let (listener, port) = sides[1].listen(TCP, 0);
    let active = sides[0].resolved(TCP, port);
    if device == "softiw0" {
        stream::create_qp(active, 1);
    }
    command("port down");
    connect(active, b"").unwrap();
    assert!(!sides[0].is_readable(100) && !sides[1].is_readable(100), "neither side has an event");
    command("port up");
    sides[1].expect(event_type::RDMA_CM_EVENT_CONNECT_REQUEST);
    // A listener that was made while the port was down accepts when it is up.
    command("port down");
    let (late, port) = sides[1].listen(TCP, 0);
    let second = sides[0].resolved(TCP, port);
    if device == "softiw0" {
        stream::create_qp(second, 1);
    }
    connect(second, b"").unwrap();
    command("port up");
    sides[1].expect(event_type::RDMA_CM_EVENT_CONNECT_REQUEST);
    [listener, late].into_iter().for_each(destroy);
}

#[test]
fn request_waits_on_soft0() {
    if is_alone("rdmacm::faults::request_waits_on_soft0") {
        request_waits("soft0");
    }
}

#[test]
fn request_waits_on_softiw0() {
    if is_alone("rdmacm::faults::request_waits_on_softiw0") {
        request_waits("softiw0");
    }
}

#[test]
fn removal_ends_the_identifiers_of_the_device() {
    if !is_alone("rdmacm::faults::removal_ends_the_identifiers_of_the_device") {
        return;
    }
    softrnic::Builder::new().device("soft0").register().unwrap();
    let sides = [Channel::new(), Channel::new()];
    let (listener, port) = sides[1].listen(TCP, 0);
    let [active, passive] = connected(&sides, port);
    let resolved = sides[0].resolved(TCP, port);
    command("address change");
    for side in &sides {
        for _ in 0..2 {
            side.expect(event_type::RDMA_CM_EVENT_ADDR_CHANGE);
        }
    }
    command("device remove");
    for side in &sides {
        for _ in 0..2 {
            side.expect(event_type::RDMA_CM_EVENT_DEVICE_REMOVAL);
        }
    }
    assert_eq!(connect(resolved, b""), Err(libc::EINVAL));
    // SAFETY: the identifier is alive, and the attributes are numbers and pointers.
    unsafe {
        let mut attributes: ibv_qp_init_attr = mem::zeroed();
        attributes.qp_type = ibv_qp_type::IBV_QPT_RC;
        assert_eq!(rdma_create_qp(resolved, ptr::null_mut(), &raw mut attributes), -1);
        assert_eq!(errno(), libc::EIO);
    }
    [active, passive].into_iter().for_each(stream::end);
    [listener, resolved].into_iter().for_each(destroy);

    command("device arrive");
    let (listener, port) = sides[1].listen(TCP, 0);
    connected(&sides, port).into_iter().for_each(stream::end);
    destroy(listener);
}

/// Messages on TCP wait while the port is down.
#[test]
fn stream_waits_until_the_port_is_up() {
    if !is_alone("rdmacm::faults::stream_waits_until_the_port_is_up") {
        return;
    }
    softrnic::Builder::new().device("softiw0").register().unwrap();
    let sides = [Channel::new(), Channel::new()];
    let (listener, port) = sides[1].listen(TCP, 0);
    let ids = connected(&sides, port);
    let [active, passive] = ids;
    let poll = |id: *mut rdma_cm_id, sends: bool| {
        // SAFETY: the identifier is alive, and so are its queues.
        unsafe {
            let mut completion: ibv_wc = mem::zeroed();
            let queue = if sends { (*id).send_cq } else { (*id).recv_cq };
            (ibv_poll_cq(queue, 1, &raw mut completion) == 1).then_some(completion.status)
        }
    };
    let post = || {
        // SAFETY: the QPs are alive, and the requests are empty.
        unsafe {
            let (mut receive, mut send): (ibv_recv_wr, ibv_send_wr) = mem::zeroed();
            (send.opcode, send.send_flags) = (ibv_wr_opcode::IBV_WR_SEND, ibv_send_flags::IBV_SEND_SIGNALED.0);
            assert_eq!(ibv_post_recv((*passive).qp, &raw mut receive, &mut ptr::null_mut()), 0);
            assert_eq!(ibv_post_send((*active).qp, &raw mut send, &mut ptr::null_mut()), 0);
        }
    };
    let wait = |id, sends| loop {
        if let Some(status) = poll(id, sends) {
            return status;
        }
    };
    let success = ibv_wc_status::IBV_WC_SUCCESS;
    post();
    assert_eq!((wait(active, true), wait(passive, false)), (success, success));
    command("port down");
    post();
    assert!((0..100).all(|_| poll(active, true).is_none() && poll(passive, false).is_none()));
    command("port up");
    assert_eq!((wait(active, true), wait(passive, false)), (success, success));

    command("device remove");
    for side in &sides {
        let removal = event_type::RDMA_CM_EVENT_DEVICE_REMOVAL;
        while side.next().kind != removal {}
    }
    ids.into_iter().for_each(stream::end);
    destroy(listener);
}
