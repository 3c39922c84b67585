//! When a worker and its senders sleep, and when they wake.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Wake, Waker};

use super::*;

struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn sender_without_memory_sleeps_until_memory_is_free() {
    let mut server = Server::new(Transport::Tcp);
    let (mut client, near, far) = server.neighbour(Kind::Tcp);
    let pool = client.tcp.backend.pool().clone();
    client.tcp.table.stock.spare.clear();
    let held: Vec<Buf> = std::iter::from_fn(|| pool.segment()).collect();
    assert_eq!(client.try_send(near, &[1; 1_000]).map_err(|error| error.kind()), Err(ErrorKind::WouldBlock));
    let count = Arc::new(Count(AtomicU32::new(0)));
    client.register(near, Wait::Write, &Waker::from(Arc::clone(&count)));
    for _ in 0..100 {
        client.poll();
        server.worker.poll();
    }
    assert_eq!(count.0.load(Ordering::Relaxed), 0, "no memory is left to continue with");
    drop(held);
    client.poll();
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    client.try_send(near, &[1; 1_000]).unwrap();
    assert_eq!(wait_for_message(&mut server, far, &mut client).len(), 1_000);
}

#[test]
fn flush_of_a_full_socket_sleeps_until_the_peer_reads() {
    const LENGTH: usize = 24 << 20;
    let mut server = Server::new(Transport::Tcp);
    let mut peer = server.raw_peer_with(16);
    send_to_reader(&mut server, &mut peer, LENGTH);
    let (id, socket) = (peer.1, &mut peer.0);
    let mut answer = read(&mut server, socket, 12);
    server.worker.set_send_buffer(id, 2 * LENGTH).unwrap();
    server.worker.try_send(id, b"after the answer").unwrap();
    assert!(!server.worker.is_flushed(id).unwrap());
    let begun = Instant::now();
    while server.worker.poll() != 0 || server.worker.arm().unwrap().is_zero() {
        assert!(begun.elapsed() < LONG, "the worker makes turns while nothing changes");
    }
    answer.extend(read(&mut server, socket, LENGTH));
    socket.write_all(&send(Frame { a: 1, ..Frame::new(FrameKind::DONE) }, b"")).unwrap();
    while !server.worker.is_flushed(id).unwrap() {
        server.worker.poll();
        assert!(begun.elapsed() < LONG);
    }
}

/// The first part of a message that waits is sent with a segment that no later message takes.
#[cfg(feature = "softrnic")]
#[test]
fn messages_that_wait_leave_memory_for_the_parts_of_those_before_them() {
    softrnic::register().unwrap();
    // After one of these numbers of messages, the long message is the first one that waits for a credit.
    for before in 0..=usize::from(FLOOR) {
        let mut server = Server::with(&Options { memory: 16 << 20, ..Options::default() });
        let (mut client, near, far) = server.neighbour(Kind::Rdma);
        let long = client.alloc(near, 10_000);
        (0..before).for_each(|_| client.try_send(near, &[1; 3_000]).unwrap());
        client.flush();
        let stock = &mut client.verbs.get_mut(0).unwrap().table.stock;
        stock.spare.clear();
        let mut held: Vec<Buf> = std::iter::from_fn(|| stock.pool.segment()).collect();
        held.truncate(held.len() - 10);
        client.try_send_buf(near, long).unwrap();
        let mut lengths = [vec![3_000; before], vec![10_000]].concat();
        while client.try_send(near, &[1; 3_000]).is_ok() {
            lengths.push(3_000);
        }
        for length in lengths {
            assert_eq!(wait_for_message(&mut server, far, &mut client).len(), length, "{before}");
        }
    }
}

#[cfg(feature = "softrnic")]
#[test]
fn receiver_without_memory_gets_an_error_and_later_the_message() {
    softrnic::register().unwrap();
    let mut server = Server::with(&Options { memory: 16 << 20, ..Options::default() });
    let (mut client, near, far) = server.neighbour(Kind::Rdma);
    // As if these were receives, which do not return to the pool.
    let stock = &mut server.worker.verbs.get_mut(0).unwrap().table.stock;
    let held: Vec<Buf> = std::iter::from_fn(|| stock.pool.segment()).collect();
    stock.ledger.total += held.len() as u32;
    client.try_send(near, &[7; 300_000]).unwrap();
    let begun = Instant::now();
    let error = loop {
        client.poll();
        server.worker.poll();
        match server.worker.try_recv(far) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => assert!(begun.elapsed() < LONG),
            result => break result.unwrap_err(),
        }
    };
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    server.worker.verbs.get_mut(0).unwrap().table.stock.ledger.total -= held.len() as u32;
    drop(held);
    // This call finds the memory, before the worker's next turn.
    assert_eq!(server.worker.try_recv(far).unwrap_err().kind(), ErrorKind::WouldBlock);
    let begun = Instant::now();
    let message = loop {
        client.poll();
        server.worker.poll();
        match server.worker.try_recv(far) {
            Err(_) => assert!(begun.elapsed() < LONG),
            Ok(message) => break message,
        }
    };
    assert!(message.len() == 300_000 && message.iter().all(|byte| *byte == 7));
}

/// The peer reads nothing. Each short message is in a buffer of its own.
#[test]
fn waiting_messages_use_the_memory_of_their_bytes() {
    let mut server = Server::new(Transport::Tcp);
    let (mut client, near, _) = server.neighbour(Kind::Tcp);
    let high_water = Options::default().send_high_water;
    for length in [1, 3_000] {
        let mut waits = 0;
        while waits < 100 {
            let message = client.alloc(near, length);
            waits = if client.try_send_buf(near, message).is_ok() { 0 } else { waits + 1 };
            client.poll();
            server.worker.poll();
        }
        let bytes = client.tcp.backend.pool().bytes();
        assert!(bytes <= 8 * high_water, "{bytes} bytes for messages of {length}");
    }
}

#[test]
fn worker_does_not_sleep_while_unread_events_are_pending() {
    #[cfg(feature = "softrnic")]
    softrnic::register().unwrap();
    let mut server = Server::new(Transport::Any);
    let (mut client, near, far) = server.neighbour(Kind::Tcp);
    let begun = Instant::now();
    while server.worker.arm().unwrap().is_zero() {
        server.worker.poll();
        client.poll();
        assert!(begun.elapsed() < LONG);
    }
    // Creates the state after many turns with events of the device only. An edge-triggered epoll reports the event only
    // once.
    server.worker.tcp_silence = LOOKS;
    client.try_send(near, b"unseen").unwrap();
    client.flush();
    assert_eq!(server.worker.arm().unwrap(), Duration::ZERO);
    server.worker.poll();
    assert_eq!(&server.worker.try_recv(far).unwrap()[..], b"unseen");
}

/// Each turn asks the kernel. The answer that a turn has sent does not make another one due.
#[test]
fn worker_that_has_sent_a_message_sleeps_without_another_turn() {
    let mut server = Server::new(Transport::Tcp);
    let (mut client, near, far) = server.neighbour(Kind::Tcp);
    client.register(near, Wait::Read, Waker::noop());
    client.try_send(near, &[1; 100]).unwrap();
    client.flush();
    assert!(client.arm().unwrap() > Duration::ZERO);
    assert_eq!(wait_for_message(&mut server, far, &mut client).len(), 100);
    // A call that waits until the message is sent needs the turn.
    client.try_send(near, &[1; 100]).unwrap();
    client.flush();
    assert!(!client.is_flushed(near).unwrap());
    assert_eq!(client.arm().unwrap(), Duration::ZERO);
    client.poll();
    assert!(client.is_flushed(near).unwrap());
}

#[test]
fn worker_does_not_sleep_before_it_has_taken_all_events() {
    let mut server = Server::new(Transport::Tcp);
    let mut clients = [(); 3].map(|()| server.neighbour(Kind::Tcp));
    while server.worker.poll() != 0 {}
    for (client, near, _) in &mut clients {
        client.try_send(*near, &[1; 100]).unwrap();
        client.flush();
    }
    let begun = Instant::now();
    let mut count = 0;
    while count < clients.len() {
        let taken = server.worker.tcp.turn(1);
        count += taken;
        assert_eq!(server.worker.arm_backends().unwrap(), taken == 0);
        assert!(begun.elapsed() < LONG);
    }
}
