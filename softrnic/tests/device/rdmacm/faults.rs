//! What the connection manager reports of faults of its devices.

use super::*;
use crate::child::is_alone;

fn command(text: &str) {
    let command: softrnic::control::Command = text.parse().unwrap();
    assert_eq!(command.run(), Ok(String::new()), "{text}");
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

/// A connection of softiw0 with a message buffer of each side.
struct Connection {
    sides: [Channel; 2],
    listener: *mut rdma_cm_id,
    /// The active side, and the passive one.
    ids: [*mut rdma_cm_id; 2],
    regions: [*mut ibv_mr; 2],
    memory: [Box<[u8; 64]>; 2],
}

impl Connection {
    fn new() -> Self {
        softrnic::Builder::new().device("softiw0").register().unwrap();
        let sides = [Channel::new(), Channel::new()];
        let (listener, port) = sides[1].listen(TCP, 0);
        let ids = connected(&sides, port);
        let mut memory = [Box::new([1; 64]), Box::new([0; 64])];
        let access = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 as c_int;
        // SAFETY: the identifiers are alive, and the memory until the regions are deregistered.
        let regions: [*mut ibv_mr; 2] = std::array::from_fn(|side| unsafe {
            ibv_reg_mr((*ids[side]).pd, memory[side].as_mut_ptr().cast(), 64, access)
        });
        Self { sides, listener, ids, regions, memory }
    }

    fn qp(&self, side: usize) -> *mut ibv_qp {
        // SAFETY: the identifier is alive, and has a QP.
        unsafe { (*self.ids[side]).qp }
    }

    fn part(&self, side: usize) -> ibv_sge {
        // SAFETY: the region is alive.
        unsafe { ibv_sge { addr: (*self.regions[side]).addr as u64, length: 64, lkey: (*self.regions[side]).lkey } }
    }

    fn receive(&self, side: usize) {
        let mut sge = self.part(side);
        // SAFETY: the QP is alive, and the request exists during the call; its other fields are numbers and pointers.
        unsafe {
            let mut receive = ibv_recv_wr { sg_list: &raw mut sge, num_sge: 1, ..mem::zeroed() };
            assert_eq!(ibv_post_recv(self.qp(side), &raw mut receive, &mut ptr::null_mut()), 0);
        }
    }

    fn send(&self) {
        let mut sge = self.part(0);
        let (opcode, send_flags) = (ibv_wr_opcode::IBV_WR_SEND, ibv_send_flags::IBV_SEND_SIGNALED.0);
        // SAFETY: as above.
        unsafe {
            let mut send = ibv_send_wr { sg_list: &raw mut sge, num_sge: 1, opcode, send_flags, ..mem::zeroed() };
            assert_eq!(ibv_post_send(self.qp(0), &raw mut send, &mut ptr::null_mut()), 0);
        }
    }

    fn poll(&self, side: usize) -> Option<ibv_wc_status> {
        // SAFETY: the queues are alive, and the completion is writable.
        unsafe {
            let (mut wc, qp): (ibv_wc, _) = (mem::zeroed(), self.qp(side));
            let cq = if side == 0 { (*qp).send_cq } else { (*qp).recv_cq };
            (ibv_poll_cq(cq, 1, &raw mut wc) == 1).then_some(wc.status)
        }
    }

    fn wait(&self, side: usize) -> ibv_wc_status {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(status) = self.poll(side) {
                return status;
            }
            assert!(Instant::now() < deadline, "timed out waiting for a completion");
            std::thread::yield_now();
        }
    }

    fn state(&self, side: usize) -> ibv_qp_state {
        // SAFETY: the QP is alive, and the attributes are writable.
        unsafe {
            let (mut attr, mut init): (ibv_qp_attr, ibv_qp_init_attr) = (mem::zeroed(), mem::zeroed());
            let mask = ibv_qp_attr_mask::IBV_QP_STATE.0 as c_int;
            assert_eq!(ibv_query_qp(self.qp(side), &raw mut attr, mask, &raw mut init), 0);
            attr.qp_state
        }
    }

    fn close(self) {
        for (id, region) in self.ids.into_iter().zip(self.regions) {
            // SAFETY: the objects are alive, and are used no more.
            unsafe {
                rdma_destroy_qp(id);
                assert_eq!(ibv_dereg_mr(region), 0);
            }
            destroy(id);
        }
        destroy(self.listener);
        drop((self.sides, self.memory));
    }
}

#[test]
fn messages_of_a_cut_connection_arrive_later() {
    if !is_alone("rdmacm::faults::messages_of_a_cut_connection_arrive_later") {
        return;
    }
    let connection = Connection::new();
    let send = || {
        connection.receive(1);
        connection.send();
    };
    command("cut 20s on softiw0");
    send();
    for _ in 0..1000 {
        assert_eq!([connection.poll(0), connection.poll(1)], [None; 2]);
    }
    command("cut 0s");
    let ok = ibv_wc_status::IBV_WC_SUCCESS;
    assert_eq!([connection.wait(0), connection.wait(1)], [ok; 2]);
    // A cut ends by itself.
    let (start, time) = (Instant::now(), Duration::from_millis(50));
    command("cut 50ms");
    send();
    assert_eq!([connection.wait(0), connection.wait(1)], [ok; 2]);
    assert!(start.elapsed() >= time);
    assert_eq!([connection.state(0), connection.state(1)], [ibv_qp_state::IBV_QPS_RTS; 2]);
    connection.close();
}

#[test]
fn corrupt_frame_ends_the_connection() {
    if !is_alone("rdmacm::faults::corrupt_frame_ends_the_connection") {
        return;
    }
    let connection = Connection::new();
    (0..2).for_each(|side| connection.receive(side));
    command("corrupt on softiw0");
    connection.send();
    let flushed = ibv_wc_status::IBV_WC_WR_FLUSH_ERR;
    // The message has left, and the peer does not deliver it.
    assert_eq!([connection.wait(0), connection.wait(1)], [ibv_wc_status::IBV_WC_SUCCESS, flushed]);
    assert_eq!(connection.memory[1][..], [0; 64]);
    for side in &connection.sides {
        side.expect(event_type::RDMA_CM_EVENT_DISCONNECTED);
    }
    assert_eq!([connection.state(0), connection.state(1)], [ibv_qp_state::IBV_QPS_ERR; 2]);
    connection.close();
    // Only one frame was damaged.
    let connection = Connection::new();
    connection.receive(1);
    connection.send();
    assert_eq!(connection.wait(1), ibv_wc_status::IBV_WC_SUCCESS);
    connection.close();
}
