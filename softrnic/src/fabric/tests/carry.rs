//! From one end to the other and back.

use std::sync::atomic::Ordering;

use super::{answer, end, part, until};
use crate::engine::packet::{BLOCK, Fabric, Packet, Payload};

#[test]
#[cfg_attr(miri, ignore = "makes sockets")]
fn a_part_comes_and_its_answer_goes_back() {
    let (here, there) = (end(), end());
    let block = there.host.claim().unwrap();
    here.host.claim().unwrap();
    let number = block * BLOCK + 17;
    let way = here.host.carrier(number).unwrap();
    let bytes: Vec<u8> = (0..10_000).map(|index| index as u8).collect();
    way.put(&Packet::Part(part(number, 10_000)), Payload::Bytes(&bytes)).unwrap();
    until(|| !there.seen.parts.lock().unwrap().is_empty());
    let (came, payload) = there.seen.parts.lock().unwrap().remove(0);
    assert_eq!((came.number, came.request.source_number, came.attempt), (number, 7, 3));
    assert!(payload == bytes);
    let back = there.seen.back.lock().unwrap().take().unwrap();
    back.put(&Packet::Answer(answer(7)), Payload::Bytes(&[])).unwrap();
    until(|| !here.seen.answers.lock().unwrap().is_empty());
    assert_eq!(here.seen.answers.lock().unwrap()[0].0, answer(7));
    assert_eq!(here.seen.lost.load(Ordering::SeqCst), 0);
}
