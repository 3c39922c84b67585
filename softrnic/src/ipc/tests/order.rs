//! Tests that a message of a peer is delivered after all responses that the peer has sent before.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use super::{end, end_on, part, response, until};
use crate::ipc::session::{Role, Session};
use crate::sys::thread::{Next, Reactor, Task};
use crate::wire::packet::{BLOCK, MAX_PAYLOAD, Packet, Payload, ResponseKind};
use crate::wire::transport::{Routes, Stuck, Transport};

const EMPTY: Payload<'_> = Payload::Bytes(&[]);

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn message_waits_for_a_qp_with_an_unprocessed_response() {
    let (here, there) = (end(), end());
    let (own, block) = (here.host.claim().unwrap(), there.host.claim().unwrap());
    here.host.carrier(block * BLOCK).unwrap().put(&Packet::Part(part(block * BLOCK, 0)), EMPTY).unwrap();
    until(|| there.seen.back.lock().unwrap().is_some());
    here.seen.is_late.store(true, Ordering::SeqCst);
    there.seen.back.lock().unwrap().take().unwrap().put(&Packet::Response(response(7)), EMPTY).unwrap();
    there.host.carrier(own * BLOCK).unwrap().put(&Packet::Part(part(own * BLOCK, 0)), EMPTY).unwrap();
    until(|| !here.seen.responses.lock().unwrap().is_empty());
    // The message once waited for at most a second, which is too short on a busy machine.
    std::thread::sleep(Duration::from_millis(1100));
    assert!(here.seen.parts.lock().unwrap().is_empty());
    // A thread that receives all packets waits too.
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| here.host.settle());
        std::thread::sleep(Duration::from_millis(10));
        assert!(here.seen.parts.lock().unwrap().is_empty() && !receiver.is_finished());
        here.seen.is_late.store(false, Ordering::SeqCst);
    });
    until(|| !here.seen.parts.lock().unwrap().is_empty());
}

/// Nothing else would end the wait if the thread that holds the send queue needs the message. Later responses do not
/// extend it, so that no peer can delay all messages.
#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn message_waits_only_up_to_the_limit() {
    let (here, there) = (end(), end());
    let (own, block) = (here.host.claim().unwrap(), there.host.claim().unwrap());
    here.host.carrier(block * BLOCK).unwrap().put(&Packet::Part(part(block * BLOCK, 0)), EMPTY).unwrap();
    until(|| there.seen.back.lock().unwrap().is_some());
    let back = there.seen.back.lock().unwrap().take().unwrap();
    here.seen.is_late.store(true, Ordering::SeqCst);
    back.put(&Packet::Response(response(7)), EMPTY).unwrap();
    until(|| here.seen.responses.lock().unwrap().len() == 1);
    there.host.carrier(own * BLOCK).unwrap().put(&Packet::Part(part(own * BLOCK, 0)), EMPTY).unwrap();
    until(|| {
        back.put(&Packet::Response(response(8)), EMPTY).unwrap();
        !here.seen.parts.lock().unwrap().is_empty()
    });
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn message_waits_for_space_for_its_reply() {
    let (here, there) = (end(), end());
    let (_, block) = (here.host.claim().unwrap(), there.host.claim().unwrap());
    let carrier = here.host.carrier(block * BLOCK).unwrap();
    carrier.put(&Packet::Part(part(block * BLOCK, 0)), EMPTY).unwrap();
    until(|| there.seen.back.lock().unwrap().is_some());
    there.seen.parts.lock().unwrap().clear();
    let back = there.seen.back.lock().unwrap().take().unwrap();
    // While the thread of this end is blocked, data fills the ring but leaves space for replies.
    let held = here.seen.responses.lock().unwrap();
    let kind = ResponseKind::Data { offset: 0, length: MAX_PAYLOAD };
    let data = Packet::Response(crate::wire::packet::Response { kind, ..response(7) });
    while back.put(&data, Payload::Bytes(&[0; MAX_PAYLOAD as usize])).is_ok() {}
    let replies = (0..).take_while(|_| back.put(&Packet::Response(response(7)), EMPTY).is_ok()).count();
    assert!(replies >= 128, "{replies}");
    assert_eq!(back.put(&Packet::Response(response(7)), EMPTY), Err(Stuck::Full));
    carrier.put(&Packet::Part(part(block * BLOCK, 0)), EMPTY).unwrap();
    for _ in 0..100 {
        there.host.progress();
    }
    assert!(there.seen.parts.lock().unwrap().is_empty());
    drop(held);
    until(|| there.seen.parts.lock().unwrap().len() == 1);
    // From now on, there is enough space for replies again.
    let held = here.seen.responses.lock().unwrap();
    while back.put(&data, Payload::Bytes(&[0; MAX_PAYLOAD as usize])).is_ok() {}
    carrier.put(&Packet::Part(part(block * BLOCK, 0)), EMPTY).unwrap();
    until(|| there.seen.parts.lock().unwrap().len() == 2);
    drop(held);
}

/// The thread also runs the alarms of QPs and serves other hosts, so it must not wait with the end of the session.
#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn session_that_ends_late_delays_no_other_task() {
    /// Reports its turns.
    struct Other(Sender<()>);

    impl Task for Other {
        fn turn(&mut self) -> Next {
            _ = self.0.send(());
            Next::Never
        }
    }

    fn thread() -> &'static Reactor {
        static THREAD: OnceLock<&'static Reactor> = OnceLock::new();
        THREAD.get_or_init(Reactor::of_test)
    }

    // On a busy machine, the limit for the wait may pass before the thread has looked at the other task.
    let is_undelayed = (0..3).any(|_| {
        let (here, there) = (end_on(thread), end());
        let (own, block) = (here.host.claim().unwrap(), there.host.claim().unwrap());
        here.host.carrier(block * BLOCK).unwrap().put(&Packet::Part(part(block * BLOCK, 0)), EMPTY).unwrap();
        until(|| there.seen.back.lock().unwrap().is_some());
        there.host.carrier(own * BLOCK).unwrap().put(&Packet::Part(part(own * BLOCK, 0)), EMPTY).unwrap();
        until(|| here.seen.parts.lock().unwrap().len() == 1);
        here.seen.is_late.store(true, Ordering::SeqCst);
        let back = there.seen.back.lock().unwrap().take().unwrap();
        back.put(&Packet::Response(response(7)), EMPTY).unwrap();
        until(|| here.seen.responses.lock().unwrap().len() == 1);
        let is_requester = |session: &Session| session.role != Role::Responder;
        there.host.0.get().each(|session| {
            if is_requester(session) {
                _ = rustix::net::shutdown(&session.socket, rustix::net::Shutdown::Both);
            }
        });
        let peers = here.host.0.get();
        until(|| !peers.closed.lock().unwrap().is_empty());
        let (sender, turns) = mpsc::channel();
        thread().add(|_| Ok(Box::new(Other(sender)))).unwrap();
        turns.recv_timeout(Duration::from_secs(60)).unwrap();
        let is_undelayed = here.seen.lost.load(Ordering::SeqCst) == 0;
        here.seen.is_late.store(false, Ordering::SeqCst);
        until(|| here.seen.lost.load(Ordering::SeqCst) == 1);
        is_undelayed
    });
    assert!(is_undelayed);
}
