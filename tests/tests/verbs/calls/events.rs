//! Completion channels: waits, time-outs, and queues that are destroyed while their events arrive.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use sideway::ibverbs::completion::CompletionQueue;
use sideway_tests::recording::{Completion, Failure, Recording};

const LONG: Option<Duration> = Some(Duration::from_secs(60));

#[test]
fn event_names_its_queue_and_is_acknowledged_once() {
    let recording = Recording::new();
    let context = recording.open();
    let channel = context.create_comp_channel().unwrap();
    let build = |number| {
        let mut builder = context.create_cq_builder();
        builder.setup_comp_channel(&channel, 0).setup_cq_context(number);
        builder.build_ex().unwrap()
    };
    let (one, two) = (build(1), build(2));
    one.req_notify(false).unwrap();
    two.req_notify(true).unwrap();
    recording.complete(&two, Completion::default()).complete(&one, Completion::default()).calls();
    for (number, cq) in [(2, &two), (1, &one)] {
        let event = channel.get_cq_event(LONG).unwrap();
        assert_eq!(event.cq_context(), number);
        assert!(event.is_of(cq));
        event.req_notify(false).unwrap();
    }
    assert!(channel.try_get_cq_event().unwrap().is_none());
    let acknowledged = recording.calls().iter().filter(|call| call.verb == "ack_cq_events").count();
    assert_eq!(acknowledged, 2);
    assert_eq!(channel.as_fd().as_raw_fd(), channel.as_raw_fd());
}

#[test]
fn wait_ends_at_its_deadline() {
    let recording = Recording::new();
    let context = recording.open();
    let channel = context.create_comp_channel().unwrap();
    for wait in [Duration::ZERO, Duration::from_micros(300), Duration::from_millis(30)] {
        let begin = Instant::now();
        let error = channel.get_cq_event(Some(wait)).unwrap_err();
        assert_eq!(error.errno().raw(), libc::ETIMEDOUT);
        assert!(begin.elapsed() >= wait, "{:?} of {wait:?}", begin.elapsed());
    }
    recording.calls();
    assert!(channel.try_get_cq_event().unwrap().is_none());
    assert_eq!(recording.verbs(), ["get_cq_event"]);
    // A time-out beyond the clock's range counts as unlimited, and does not overflow.
    let cq = context.create_cq_builder().setup_comp_channel(&channel, 0).build().unwrap();
    cq.req_notify(false).unwrap();
    recording.complete(&cq, Completion::default());
    channel.get_cq_event(Some(Duration::MAX)).unwrap();
}

#[test]
fn wait_ends_when_something_completes() {
    let recording = Recording::new();
    let context = recording.open();
    let channel = context.create_comp_channel().unwrap();
    let cq = context.create_cq_builder().setup_comp_channel(&channel, 0).build().unwrap();
    cq.req_notify(false).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| channel.get_cq_event(None).map(|event| event.is_of(&cq)));
        thread::sleep(Duration::from_millis(20));
        recording.complete(&cq, Completion::default());
        assert!(waiting.join().unwrap().unwrap());
    });
}

#[test]
fn failed_event_calls_are_errors_of_the_verb() {
    let recording = Recording::new();
    let context = recording.open();
    let channel = context.create_comp_channel().unwrap();
    recording.fail("get_cq_event", 0, Failure::documented(libc::EIO));
    let error = channel.get_cq_event(LONG).unwrap_err();
    assert_eq!(
        error.to_string(),
        "ibv_get_cq_event: EIO (Input/output error): the device was removed, or its descriptor was closed; no more events \
             will arrive"
    );
    recording.fail("get_cq_event", 0, Failure::documented(libc::EACCES));
    let error = channel.get_cq_event(LONG).unwrap_err();
    assert_eq!(error.to_string(), "ibv_get_cq_event: EACCES (Permission denied)");
    // A signal and an empty channel are not failures.
    recording.fail("get_cq_event", 0, Failure::documented(libc::EINTR));
    assert!(channel.try_get_cq_event().unwrap().is_none());
}

#[test]
fn queue_without_a_channel_raises_no_events() {
    let recording = Recording::new();
    let context = recording.open();
    let cq = context.create_cq_builder().build().unwrap();
    recording.calls();
    let error = cq.req_notify(false).unwrap_err();
    assert!(error.hint().unwrap().contains("setup_comp_channel"), "{error}");
    assert_eq!(recording.verbs(), [""; 0]);
}

#[test]
fn events_of_a_destroyed_queue_are_dropped() {
    let recording = Recording::new();
    let context = recording.open();
    let channel = context.create_comp_channel().unwrap();
    let cq = context.create_cq_builder().setup_comp_channel(&channel, 0).build().unwrap();
    cq.req_notify(false).unwrap();
    recording.complete(&cq, Completion::default());
    drop(cq);
    assert!(channel.try_get_cq_event().unwrap().is_none());
}

#[test]
fn queue_destroyed_during_an_event_read_is_handled() {
    let recording = Recording::new();
    let context = recording.open();
    let channel = context.create_comp_channel().unwrap();
    for _ in 0..500 {
        let cq = context.create_cq_builder().setup_comp_channel(&channel, 0).setup_cq_context(5).build().unwrap();
        cq.req_notify(false).unwrap();
        recording.complete(&cq, Completion::default());
        let barrier = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                barrier.wait();
                drop(cq);
            });
            barrier.wait();
            // The event has a queue that is kept alive, or none; never a destroyed one.
            if let Some(event) = channel.try_get_cq_event().unwrap() {
                assert_eq!(event.cq_context(), 5);
                event.req_notify(false).unwrap();
            }
        });
        recording.calls();
    }
    drop((channel, context));
    assert_eq!(recording.live(), []);
}

#[test]
fn hung_up_descriptor_does_not_spin() {
    let recording = Recording::new();
    let context = recording.open();
    let channel = context.create_comp_channel().unwrap();
    // A pipe with its other end closed replaces the channel's descriptor: always readable, but empty, like the
    // descriptor of a removed device.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(writer);
    // SAFETY: both descriptors are open; `dup2` leaves the channel's descriptor number unchanged.
    assert!(unsafe { libc::dup2(reader.as_raw_fd(), channel.as_raw_fd()) } >= 0);
    recording.fail_always("get_cq_event", Failure::documented(libc::EAGAIN)).quiet();
    let begin = Instant::now();
    let error = channel.get_cq_event(Some(Duration::from_millis(50))).unwrap_err();
    assert!(begin.elapsed() < Duration::from_secs(60), "{error} after {:?}", begin.elapsed());
    assert!(matches!(error.errno().raw(), libc::ETIMEDOUT | libc::EIO), "{error}");
    assert!(recording.failable() < 100, "{} calls", recording.failable());
}
