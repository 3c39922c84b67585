//! Tests that compare a ring with a queue, and tests of a ring whose other end is malicious.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::ipc::codec::Malformed;
use crate::ipc::ring::{CONTROL, Consumer, NotPut, Producer, Ring};
use crate::ipc::shared::Shared;
use crate::wire::bytes::{Segment, read_bytes};
use crate::wire::packet::Payload;

const SIZE: usize = 4096;
const WORDS: usize = 8;

fn ring() -> (Arc<Shared>, Ring) {
    let shared = Arc::new(Shared::of_heap(CONTROL + SIZE));
    (Arc::clone(&shared), Ring::new(shared, 0, CONTROL, SIZE))
}

fn ends() -> (Producer, Consumer, Arc<Shared>) {
    let (shared, ring) = ring();
    (Producer::new(ring.clone()), Consumer::new(ring, WORDS), shared)
}

/// Writes a record whose content depends on this seed. The payload comes from a slice or from two segments.
fn put(producer: &mut Producer, seed: u8, length: u32) -> Result<(), NotPut> {
    let mut bytes = vec![seed; length as usize];
    let words = [u64::from(seed) << 32 | u64::from(length); WORDS];
    if seed.is_multiple_of(2) {
        return producer.put(&words, Payload::Bytes(&bytes), length, 0);
    }
    // SAFETY: the bytes belong to the vector, which lives until the end.
    let mut rest = unsafe { Segment::of_raw(bytes.as_mut_ptr(), bytes.len()) };
    let first = rest.split_to(length as usize / 3);
    producer.put(&words, Payload::Memory(&[first, rest]), length, 0)
}

/// Returns the seed and the length of the next record, whose payload must be complete.
fn take(consumer: &mut Consumer) -> Result<Option<(u8, u32)>, Malformed> {
    let Some(words) = consumer.next()? else { return Ok(None) };
    let (seed, length) = ((words[0] >> 32) as u8, words[0] as u32);
    assert!(words[..WORDS].iter().all(|&word| word == words[0]));
    let pieces = consumer.take(length)?;
    let mut bytes = vec![0; length as usize];
    assert_eq!(pieces.as_slice().iter().map(Segment::len).sum::<usize>(), bytes.len());
    read_bytes(pieces.as_slice(), &mut bytes).unwrap();
    assert!(bytes.iter().all(|&byte| byte == seed));
    Ok(Some((seed, length)))
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Put(u8, u32),
    Take,
    Free,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (any::<u8>(), prop_oneof![0u32..200, 0u32..3000]).prop_map(|(seed, length)| Step::Put(seed, length)),
        3 => Just(Step::Take),
        2 => Just(Step::Free),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 4 } else { 256 }, ..Default::default() })]

    #[test]
    #[cfg_attr(miri, ignore = "Miri rejects atomic stores of different sizes to the same memory, which overlapping records are")]
    fn ring_matches_the_model(steps in vec(step(), 1..400)) {
        let (mut producer, mut consumer, _shared) = ends();
        let mut model = VecDeque::new();
        // The number of bytes that were read but not freed, and the number of bytes in use.
        let (mut held, mut used) = (0, 0);
        for step in steps {
            match step {
                Step::Put(seed, length) => {
                    let record = (WORDS * 8 + length as usize).next_multiple_of(64);
                    let fits = used + record <= SIZE;
                    prop_assert_eq!(put(&mut producer, seed, length), if fits { Ok(()) } else { Err(NotPut::Full) });
                    if fits {
                        used += record;
                        model.push_back((seed, length));
                    }
                }
                Step::Take => {
                    let expected = model.pop_front();
                    prop_assert_eq!(take(&mut consumer), Ok(expected));
                    held += expected.map_or(0, |(_, length)| (WORDS * 8 + length as usize).next_multiple_of(64));
                    prop_assert_eq!(consumer.unfreed(), held as u64);
                }
                Step::Free => {
                    prop_assert!(!consumer.free(), "no wake-up was requested");
                    used -= std::mem::take(&mut held);
                }
            }
        }
    }

    #[test]
    fn malformed_words_never_lead_outside(tail: u64, head: u64, words in vec(any::<u64>(), WORDS), length: u32) {
        let (mut producer, mut consumer, shared) = ends();
        put(&mut producer, 1, 10).unwrap();
        for (index, &word) in words.iter().enumerate() {
            shared.store(CONTROL + index * 8, word, Ordering::Relaxed);
        }
        for tail in [tail, (tail % 8192) & !63] {
            shared.store(0, tail, Ordering::Relaxed);
            if let Ok(Some(read)) = consumer.next() {
                prop_assert!(tail <= SIZE as u64 && tail % 64 == 0);
                prop_assert_eq!(&read[..WORDS], &words);
                for length in [length, length % 8192] {
                    if let Ok(pieces) = consumer.take(length) {
                        prop_assert!(64 + u64::from(length) <= tail);
                        drop(pieces);
                        break;
                    }
                }
                break;
            }
        }
        shared.store(128, head, Ordering::Relaxed);
        let mut result = Ok(());
        for _ in 0..SIZE / 64 {
            result = put(&mut producer, 2, 100);
            if result.is_err() {
                break;
            }
        }
        prop_assert!(matches!(result, Err(NotPut::Malformed(_) | NotPut::Full)));
    }
}

#[test]
fn invalid_head_and_tail_are_detected() {
    let (mut producer, mut consumer, shared) = ends();
    shared.store(128, 64, Ordering::Relaxed);
    for _ in 0..SIZE / 64 {
        put(&mut producer, 2, 0).unwrap();
    }
    // The ring is full, so the next `put` reads the head, which may have any value up to the tail.
    shared.store(128, SIZE as u64 + 64, Ordering::Relaxed);
    assert_eq!(put(&mut producer, 2, 0), Err(NotPut::Malformed(Malformed("head outside of the ring"))));
    for tail in [SIZE as u64 + 64, 1, u64::MAX] {
        shared.store(0, tail, Ordering::Relaxed);
        assert_eq!(consumer.next(), Err(Malformed("tail outside of the ring")));
    }
    shared.store(0, 64, Ordering::Relaxed);
    assert!(consumer.next().unwrap().is_some());
    assert_eq!(consumer.take(1).unwrap_err(), Malformed("record beyond the tail"));
}

#[test]
fn requested_wakeup_is_sent_once() {
    let (shared, ring) = ring();
    let (mut producer, mut consumer) = (Producer::new(ring.clone()), Consumer::new(ring.clone(), WORDS));
    assert!(!ring.take_parked());
    ring.park();
    assert!(ring.take_parked() && !ring.take_parked());
    ring.park();
    ring.unpark();
    assert!(!ring.take_parked());

    for _ in 0..SIZE / 1024 {
        put(&mut producer, 2, 1024 - 64).unwrap();
    }
    assert_eq!(put(&mut producer, 2, 0), Err(NotPut::Full));
    assert!(!ring.has_space(producer.tail()));
    ring.want_space();
    assert!(take(&mut consumer).unwrap().is_some());
    assert!(consumer.free() && ring.has_space(producer.tail()), "a quarter");
    put(&mut producer, 2, 0).unwrap();
    assert!(take(&mut consumer).unwrap().is_some());
    assert!(!consumer.free(), "the request is withdrawn");
    assert_eq!(shared.load(128, Ordering::Relaxed), 2048);
}

#[test]
#[cfg_attr(
    miri,
    ignore = "Miri rejects atomic stores of different sizes to the same memory, which overlapping records are"
)]
fn threads_transfer_records_unchanged() {
    let (mut producer, mut consumer, _shared) = ends();
    const ROUNDS: u32 = 20_000;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for round in 0..ROUNDS {
                while put(&mut producer, round as u8, round * 37 % 1500).is_err() {
                    std::thread::yield_now();
                }
            }
        });
        for round in 0..ROUNDS {
            let record = loop {
                match take(&mut consumer).unwrap() {
                    Some(record) => break record,
                    None => std::thread::yield_now(),
                }
            };
            consumer.free();
            assert_eq!(record, (round as u8, round * 37 % 1500));
        }
    });
}
