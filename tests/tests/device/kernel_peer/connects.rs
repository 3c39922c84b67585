//! Connections between softrnic and the kernel that are set up while both programs poll another connection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use sideway::ibverbs::completion::PollCompletions;
use sideway::rdmacm::Listener;
use sideway_tests::connections::LONG;

use super::end::{End, connector, parameters};

/// The number of connections that are set up one after the other.
pub(super) const COUNT: usize = 5;

/// Calls `connect`, which sets up a connection, `count` times, while another thread polls the first connection.
fn beside_a_poller<C>(mut connect: impl FnMut() -> (End, C), finish: impl Fn(C), count: usize) {
    let (mut polled, first) = connect();
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut records = Vec::new();
            while !has_ended.load(Ordering::Relaxed) {
                polled.cq.poll_records(&mut records).unwrap_or_else(|error| panic!("{error}"));
                assert!(records.is_empty(), "{records:?}");
                thread::yield_now();
            }
        });
        for _ in 0..count {
            let (end, connection) = connect();
            finish(connection);
            drop(end);
        }
        has_ended.store(true, Ordering::Relaxed);
    });
    finish(first);
}

pub(super) fn accept_all(listener: &Listener, count: usize) {
    let accept = || {
        let request = listener.accept(Some(LONG)).unwrap_or_else(|error| panic!("{error}"));
        let mut end = End::of(request.identifier());
        end.expect_peer();
        let connection = request.accept(&parameters()).unwrap_or_else(|error| panic!("{error}"));
        end.meet(false);
        (end, connection)
    };
    beside_a_poller(
        accept,
        |connection| _ = connection.wait(Some(LONG)).unwrap_or_else(|error| panic!("{error}")),
        count,
    );
}

pub(super) fn connect_all(address: &str, count: usize) {
    let connect = || {
        let resolved = connector().resolve(address).unwrap_or_else(|error| panic!("{error}"));
        let mut end = End::of(resolved.identifier());
        end.expect_peer();
        let connection = resolved.connect(&parameters()).unwrap_or_else(|error| panic!("{error}"));
        end.meet(true);
        (end, connection)
    };
    let finish = |connection: sideway::rdmacm::Connection| {
        let _ = connection.disconnect(Some(LONG)).unwrap_or_else(|error| panic!("{error}"));
    };
    beside_a_poller(connect, finish, count);
}
