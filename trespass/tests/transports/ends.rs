//! The ends of connections: closed, dropped, or drained.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{device, fill, has_ended, on_both, pair, pair_with, worker};
use trespass::{Acceptor, Connection, Grant, Interest, RegionKey, Transport};

/// A time limit that only a hung operation reaches.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn close_sends_code_and_reason_after_all_messages() {
    on_both(|transport| {
        let (left, right) = pair(transport);
        left.send(b"last").unwrap();
        left.close(7, "enough").unwrap();
        assert_eq!(&right.recv().unwrap().unwrap()[..], b"last");
        assert!(right.recv().unwrap().is_none());
        assert_eq!(right.peer_close(), Some((7, "enough".to_owned())));
        assert_eq!(right.send(b"more").map_err(|error| error.kind()), Err(ErrorKind::BrokenPipe));
    });
}

#[test]
fn close_ends_after_the_linger_time_if_the_peer_does_not_read() {
    on_both(|transport| {
        let (left, right) = pair_with(transport, Duration::from_millis(50));
        fill(&left);
        let error = left.close(0, "").unwrap_err();
        assert_eq!((error.kind(), has_ended(&error)), (ErrorKind::TimedOut, true));
        let kind = loop {
            if let Err(error) = right.recv() {
                break error.kind();
            }
        };
        assert_eq!(kind, ErrorKind::ConnectionReset);
    });
}

/// Calls without a deadline must not wait for what one thread has closed.
#[test]
fn close_by_one_thread_ends_the_calls_of_others() {
    on_both(|transport| {
        let (near, far) = pair(transport);
        let handle = worker(transport);
        let acceptor = Acceptor::bind_on(&handle, device()).unwrap();
        thread::scope(|scope| {
            let received = scope.spawn(|| near.recv());
            let sent = scope.spawn(|| while near.send(&[7; 1 << 16]).is_ok() {});
            let accepted = scope.spawn(|| acceptor.accept());
            thread::sleep(Duration::from_millis(50));
            let closed = scope.spawn(|| near.close(0, ""));
            assert_eq!(received.join().unwrap().unwrap_err().kind(), ErrorKind::NotConnected);
            sent.join().unwrap();
            acceptor.close();
            assert_eq!(accepted.join().unwrap().unwrap_err().kind(), ErrorKind::NotConnected);
            // Without this, `close` waits for the linger time, because the peer does not read.
            drop(far);
            _ = closed.join().unwrap();
        });
        assert_eq!(near.send(b"late").unwrap_err().kind(), ErrorKind::NotConnected);
        assert_eq!(near.close(0, "").unwrap_err().kind(), ErrorKind::NotConnected);
        assert_eq!(acceptor.try_accept().unwrap_err().kind(), ErrorKind::NotConnected);
    });
}

#[test]
fn sides_that_close_simultaneously_drop_unread_messages() {
    on_both(|transport| {
        let (left, right) = pair(transport);
        fill(&left);
        fill(&right);
        let closing = thread::spawn(move || left.close(1, ""));
        right.close(2, "").unwrap();
        closing.join().unwrap().unwrap();
    });
}

/// A connection that is dropped at the exit of its thread, when other thread-locals are gone already.
struct Last(Connection);

impl Last {
    fn look(&self) {
        trespass::poll(&[Interest::Message(&self.0)], Some(Instant::now())).expect("the worker is usable");
    }
}

impl Drop for Last {
    fn drop(&mut self) {
        self.look();
    }
}

#[test]
fn connection_in_a_thread_local_is_usable_until_its_drop() {
    thread_local!(static KEPT: RefCell<Option<Last>> = const { RefCell::new(None) });
    on_both(|transport| {
        let (server, client) = pair(transport);
        // The destructor of `KEPT` runs after those of the thread-locals that are used later.
        let used = move || KEPT.with(|kept| kept.borrow_mut().insert(Last(client)).look());
        thread::spawn(used).join().unwrap();
        assert!(server.recv().unwrap().is_none());
    });
}

#[test]
fn drain_returns_when_the_peers_have_everything() {
    on_both(|transport| {
        let handle = worker(transport);
        let acceptor = Acceptor::bind_on(&worker(transport), device()).unwrap();
        let near = Connection::connect_on(&handle, acceptor.local_addr(), None).unwrap();
        let far = acceptor.accept().unwrap();
        handle.drain(Duration::ZERO).unwrap();
        let sent = fill(&near);
        let error = handle.drain(Duration::from_millis(1)).unwrap_err();
        assert_eq!((error.kind(), error.to_string().ends_with("(1 have not)")), (ErrorKind::TimedOut, true), "{error}");
        near.abandon(7, "done");
        thread::scope(|scope| {
            let reads =
                scope.spawn(|| std::iter::from_fn(|| far.recv().unwrap()).filter(|got| **got == [1; 1_000]).count());
            handle.drain(LONG).unwrap();
            assert_eq!(reads.join().unwrap(), sent);
            assert_eq!(far.peer_close(), Some((7, "done".to_owned())));
        });
    });
}

#[test]
fn drain_waits_for_batches() {
    const LENGTH: usize = 1 << 20;
    let handle = worker(Transport::Rdma);
    let acceptor = Acceptor::bind_on(&worker(Transport::Rdma), device()).unwrap();
    let near = Connection::connect_on(&handle, acceptor.local_addr(), None).unwrap();
    let far = acceptor.accept().unwrap();
    let (from, to) = (near.region(LENGTH).unwrap(), far.region(LENGTH).unwrap());
    let grant = Grant::writable(&far, &to, 0..LENGTH).unwrap();
    far.send(&grant.key().to_bytes()).unwrap();
    let key = RegionKey::from_bytes(&near.recv().unwrap().unwrap()).unwrap();
    // Many more than the device has at a time.
    let puts =
        (0..LENGTH).step_by(64).fold(near.batch(), |batch, at| batch.put((&from, at..at + 64), (&key, at as u64)));
    let ticket = puts.submit().unwrap();
    handle.drain(LONG).unwrap();
    assert!(ticket.is_done().unwrap());
}
