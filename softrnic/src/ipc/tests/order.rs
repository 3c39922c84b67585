//! What a peer sends after it has received something is delivered after the answer to that.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{HERE, answer, end, part, until};
use crate::wire::packet::{AnswerKind, BLOCK, MAX_PAYLOAD, Packet, Payload};
use crate::wire::transport::{Stuck, Transport};

const EMPTY: Payload<'_> = Payload::Bytes(&[]);

#[test]
#[cfg_attr(miri, ignore = "makes sockets")]
fn a_message_waits_for_a_queue_pair_that_takes_an_answer_in_later() {
    let (here, there) = (end(), end());
    let (own, block) = (here.host.claim().unwrap(), there.host.claim().unwrap());
    here.host.carrier(HERE, block * BLOCK).unwrap().put(&Packet::Part(part(block * BLOCK, 0)), EMPTY).unwrap();
    until(|| there.seen.back.lock().unwrap().is_some());
    here.seen.is_late.store(true, Ordering::SeqCst);
    let start = Instant::now();
    there.seen.back.lock().unwrap().take().unwrap().put(&Packet::Answer(answer(7)), EMPTY).unwrap();
    there.host.carrier(HERE, own * BLOCK).unwrap().put(&Packet::Part(part(own * BLOCK, 0)), EMPTY).unwrap();
    until(|| !here.seen.answers.lock().unwrap().is_empty());
    std::thread::sleep(Duration::from_millis(10));
    let is_held_back = here.seen.parts.lock().unwrap().is_empty();
    // A thread that was away for so long is not waited for any more.
    assert!(is_held_back || start.elapsed() > Duration::from_millis(90));
    // One whose queue pair never settles waits itself, and is not waited for.
    until(|| !here.seen.parts.lock().unwrap().is_empty());
}

#[test]
#[cfg_attr(miri, ignore = "makes sockets")]
fn a_message_waits_for_room_for_its_reply() {
    let (here, there) = (end(), end());
    let (_, block) = (here.host.claim().unwrap(), there.host.claim().unwrap());
    let way = here.host.carrier(HERE, block * BLOCK).unwrap();
    way.put(&Packet::Part(part(block * BLOCK, 0)), EMPTY).unwrap();
    until(|| there.seen.back.lock().unwrap().is_some());
    there.seen.parts.lock().unwrap().clear();
    let back = there.seen.back.lock().unwrap().take().unwrap();
    // The thread of this end takes nothing in meanwhile: data fills the ring, and leaves room for replies.
    let held = here.seen.answers.lock().unwrap();
    let kind = AnswerKind::Data { offset: 0, length: MAX_PAYLOAD };
    let data = Packet::Answer(crate::wire::packet::Answer { kind, ..answer(7) });
    while back.put(&data, Payload::Bytes(&[0; MAX_PAYLOAD as usize])).is_ok() {}
    let replies = (0..).take_while(|_| back.put(&Packet::Answer(answer(7)), EMPTY).is_ok()).count();
    assert!(replies >= 128, "{replies}");
    assert_eq!(back.put(&Packet::Answer(answer(7)), EMPTY), Err(Stuck::Full));
    way.put(&Packet::Part(part(block * BLOCK, 0)), EMPTY).unwrap();
    for _ in 0..100 {
        there.host.progress();
    }
    assert!(there.seen.parts.lock().unwrap().is_empty());
    drop(held);
    until(|| there.seen.parts.lock().unwrap().len() == 1);
    // From now on room for replies is enough again.
    let held = here.seen.answers.lock().unwrap();
    while back.put(&data, Payload::Bytes(&[0; MAX_PAYLOAD as usize])).is_ok() {}
    way.put(&Packet::Part(part(block * BLOCK, 0)), EMPTY).unwrap();
    until(|| there.seen.parts.lock().unwrap().len() == 2);
    drop(held);
}
