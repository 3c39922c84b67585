//! How connections end.

use std::thread;
use std::time::Duration;

use sideway::ibverbs::queue_pair::{QueuePair, QueuePairState};
use sideway::rdmacm::{ConnectStep, Ended};
use sideway_tests::connections::LONG;

use super::{Side, listener, pair};

#[test]
fn all_waiting_threads_get_the_disconnect() {
    let listener = listener();
    let (active, passive) = pair(&listener);
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..3).map(|_| scope.spawn(|| passive.connection.wait(None))).collect();
        let own: Vec<_> = (0..2).map(|_| scope.spawn(|| active.connection.wait(None))).collect();
        let ending = scope.spawn(|| active.connection.disconnect(Some(LONG)));
        for one in waiting {
            assert_eq!(one.join().unwrap().unwrap(), Ended::Disconnected);
        }
        assert_eq!(passive.connection.disconnect(Some(LONG)).unwrap(), Ended::Disconnected);
        for one in own {
            assert_eq!(one.join().unwrap().unwrap(), Ended::Disconnected);
        }
        assert_eq!(ending.join().unwrap().unwrap(), Ended::Disconnected);
    });
    // Later calls report it too.
    assert_eq!(passive.connection.wait(Some(Duration::ZERO)).unwrap(), Ended::Disconnected);
    assert_eq!(active.connection.disconnect(None).unwrap(), Ended::Disconnected);
    assert!(active.connection.is_ended());
    assert_eq!(active.end.qp.state(), QueuePairState::Error);
}

#[test]
fn established_connection_reports_so() {
    let listener = listener();
    let (active, passive) = pair(&listener);
    let error = active.connection.wait(Some(Duration::from_millis(30))).unwrap_err();
    assert!(error.is_timed_out());
    assert_eq!(error.step(), ConnectStep::Wait);
    assert_eq!(passive.connection.ended().unwrap(), None);
    assert!(!passive.connection.is_ended() && !passive.connection.has_address_changed());
}

#[test]
fn unanswered_disconnect_still_ends() {
    let listener = listener();
    let (active, passive) = pair(&listener);
    let error = active.connection.disconnect(Some(Duration::from_millis(200))).unwrap_err();
    assert!(error.is_timed_out());
    assert_eq!((error.step(), error.address()), (ConnectStep::Disconnect, Some(listener.local_address())));
    assert_eq!(active.end.qp.state(), QueuePairState::Error);
    // Dropping all holders of the identifier responds.
    assert_eq!(passive.connection.wait(Some(LONG)).unwrap(), Ended::Disconnected);
    drop(passive);
    assert_eq!(active.connection.wait(Some(LONG)).unwrap(), Ended::Disconnected);
}

#[test]
fn connection_lasts_as_long_as_its_queue_pair() {
    let listener = listener();
    let (active, passive) = pair(&listener);
    let Side { end, connection } = active;
    drop(connection);
    assert!(!passive.connection.is_ended());
    drop(end);
    assert_eq!(passive.connection.wait(Some(LONG)).unwrap(), Ended::Disconnected);
}
