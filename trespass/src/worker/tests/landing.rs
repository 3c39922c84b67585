//! Long messages that the peer writes to announced buffers.

use sideway_tests::requirements::may_not_run;

use super::*;

const LENGTH: usize = 32 << 10;

/// A server and a client over RDMA.
struct Pair {
    server: Server,
    client: Worker,
    /// The connection at the client, and at the server.
    near: ConnectionId,
    far: ConnectionId,
}

impl Pair {
    fn new() -> Self {
        #[cfg(feature = "softrnic")]
        softrnic::register().unwrap();
        let mut server = Server::new(Transport::Rdma);
        let (client, near, far) = server.neighbour(Kind::Rdma);
        Self { server, client, near, far }
    }

    /// Sends messages to the server, and checks them there.
    fn send(&mut self, count: u8, length: usize) {
        for value in 0..count {
            let mut message = self.client.alloc(self.near, length);
            message.fill(value);
            self.client.try_send_buf(self.near, message).unwrap();
            let received = wait_for_message(&mut self.server, self.far, &mut self.client);
            assert!(received.len() == length && received.iter().all(|&byte| byte == value), "message {value}");
        }
    }

    /// Returns the number of buffers that the server has announced and the client has not used.
    fn offers(&self) -> usize {
        self.client.verbs.get(0).unwrap().get(self.near.link).unwrap().offers()
    }

    fn poll_until(&mut self, is_over: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !is_over(self) {
            self.server.worker.poll();
            self.client.poll();
            assert!(begun.elapsed() < LONG);
        }
    }

    /// Whether the server announces buffers. If not, reports that the test did not run.
    fn announces(&self) -> bool {
        let announces = self.server.worker.verbs.get(0).unwrap().backend.abilities().announces;
        if !announces {
            assert_eq!(self.offers(), 0);
            may_not_run("a key of this device cannot be limited to a buffer");
        }
        announces
    }

    /// Lets time pass for the server, without messages.
    fn idle(&mut self) {
        for _ in 0..10 {
            let driver = self.server.worker.verbs.get_mut(0).unwrap();
            driver.tick(driver.table.next_tick);
            self.server.worker.poll();
            self.client.poll();
        }
    }
}

#[test]
fn buffers_are_announced_while_long_messages_arrive_and_withdrawn_afterwards() {
    let mut pair = Pair::new();
    pair.send(3, 100);
    assert_eq!(pair.offers(), 0, "short messages need no buffers");
    if !pair.announces() {
        return;
    }
    let before = pair.server.worker.verbs.get(0).unwrap().backend.pool().outstanding();
    for _ in 0..3 {
        pair.send(20, LENGTH);
        pair.poll_until(|pair| pair.offers() != 0);
        // Messages of other lengths use the same buffers, or are READ.
        pair.send(20, 5_000);
        pair.send(5, 3 << 20);
        pair.idle();
        pair.poll_until(|pair| pair.offers() == 0);
        pair.poll_until(|pair| {
            pair.server.worker.verbs.get(0).unwrap().backend.pool().outstanding() <= before + 2 * 64
        });
    }
}

#[test]
fn messages_in_announced_buffers_survive_the_end_of_their_sender() {
    let mut pair = Pair::new();
    pair.send(20, LENGTH);
    if !pair.announces() {
        return;
    }
    pair.poll_until(|pair| pair.offers() >= 2);
    for value in [1, 2] {
        let mut message = pair.client.alloc(pair.near, LENGTH);
        message.fill(value);
        pair.client.try_send_buf(pair.near, message).unwrap();
    }
    let begun = Instant::now();
    while !pair.client.is_flushed(pair.near).unwrap() {
        pair.client.poll();
        assert!(begun.elapsed() < LONG);
    }
    // The server has not looked at the messages yet.
    drop(pair.client);
    let mut other = worker(Transport::Tcp, 8 << 20);
    for value in [1, 2] {
        let received = wait_for_message(&mut pair.server, pair.far, &mut other);
        assert!(received.len() == LENGTH && received.iter().all(|&byte| byte == value));
    }
    assert_eq!(pair.server.end_of(pair.far), ErrorKind::ConnectionReset);
}
