//! Tests a ring in shared memory in all interleavings of its producer and its consumer. Each record must be read once,
//! in order and complete. Further tests check the wake-ups of the ring with a limited number of preemptions. No thread
//! may sleep forever while there is work.
//!
//! The model supports SeqCst fences, but treats other SeqCst accesses much like AcqRel, so the tests pass only if the
//! fences are sufficient.

#[path = "../../../../softrnic/src/ipc/ring.rs"]
#[expect(dead_code, reason = "the tests use a part of it")]
mod ring;
#[path = "../../../../softrnic/src/ipc/wakeup.rs"]
#[expect(dead_code, reason = "the tests use a part of it")]
mod wakeup;

/// Shared memory whose lines have only two words, which reduces the number of interleavings.
mod shared {
    use std::sync::Arc;

    use loom::cell::UnsafeCell;

    use super::ring::CONTROL;
    use crate::sys::sync::{AtomicU64, Ordering};
    use crate::wire::bytes::Segment;

    pub(super) const LINE: usize = 16;

    /// A control block and data. Each byte of data exists twice: in a word, and as a byte of payload whose accesses the
    /// model checks.
    pub(super) struct Shared {
        control: [AtomicU64; 4],
        lines: Vec<[AtomicU64; LINE / 8]>,
        bytes: Arc<[UnsafeCell<u8>]>,
    }

    // SAFETY: the model checks the accesses to the cells, which is the purpose of the test.
    unsafe impl Send for Shared {}
    // SAFETY: as above.
    unsafe impl Sync for Shared {}

    impl Shared {
        pub(super) fn new(size: usize) -> Self {
            let line = || std::array::from_fn(|_| AtomicU64::new(0));
            Self {
                control: std::array::from_fn(|_| AtomicU64::new(0)),
                lines: (0..size / LINE).map(|_| line()).collect(),
                bytes: (0..size).map(|_| UnsafeCell::new(0)).collect(),
            }
        }

        fn word(&self, offset: usize) -> &AtomicU64 {
            assert!(offset.is_multiple_of(CONTROL / 4));
            &self.control[offset / (CONTROL / 4)]
        }

        pub(super) fn line(&self, offset: usize) -> &[AtomicU64; LINE / 8] {
            assert!(offset.is_multiple_of(LINE));
            &self.lines[(offset - CONTROL) / LINE]
        }

        pub(super) fn load(&self, offset: usize, order: Ordering) -> u64 {
            self.word(offset).load(order)
        }

        pub(super) fn store(&self, offset: usize, value: u64, order: Ordering) {
            if offset < CONTROL / 2 {
                // This word is a cursor.
                self.word(offset).store(value, order);
            } else {
                // This word is a request flag, which the other end clears by a swap. After a plain store, loads in the
                // model may return outdated values, but the model orders swaps correctly.
                self.word(offset).swap(value, order);
            }
        }

        pub(super) fn take(&self, offset: usize) -> u64 {
            self.word(offset).swap(0, Ordering::SeqCst)
        }

        pub(super) unsafe fn segment(&self, offset: usize, length: usize) -> Segment {
            let start = offset - CONTROL;
            assert!(start + length <= self.bytes.len());
            Segment { of: Some(Arc::clone(&self.bytes)), start, length }
        }
    }

    impl std::fmt::Debug for Shared {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("Shared").finish_non_exhaustive()
        }
    }
}

mod codec {
    pub(super) const PART_WORDS: usize = 4;

    pub(super) type Words = [u64; PART_WORDS];

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) struct Malformed(pub(super) &'static str);
}

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use self::ring::{CONTROL, Consumer, NotPut, Producer, Ring};
use self::shared::{LINE, Shared};
use self::wakeup::{Sleep, Sleeper, Wakeup};
use crate::sys::sync::AtomicU8;
use crate::wire::bytes::read_bytes;
use crate::wire::packet::Payload;

/// The size of a ring, which has eight lines.
const SIZE: usize = 8 * LINE;

/// The number of words in a record, which are two lines.
const WORDS: usize = codec::PART_WORDS;

fn ring() -> Ring {
    Ring::new(std::sync::Arc::new(Shared::new(SIZE)), 0, CONTROL, SIZE)
}

fn ends(ring: &Ring, words: usize) -> (Producer, Consumer) {
    (Producer::new(ring.clone()), Consumer::new(ring.clone(), words))
}

/// Writes a record in which all words and bytes equal `number`.
fn put(producer: &mut Producer, number: u8, words: usize, length: usize) -> Result<(), NotPut> {
    let (all_words, bytes) = (vec![number.into(); words], vec![number; length]);
    producer.put(&all_words, Payload::Bytes(&bytes), length as u32, 0)
}

/// Reads a record in which all words and bytes must equal `number`. Returns `false` if there is no record.
fn take(consumer: &mut Consumer, number: u8, words: usize, length: usize) -> bool {
    let Some(read) = consumer.next().unwrap() else { return false };
    assert_eq!(read[..words], vec![u64::from(number); words]);
    let pieces = consumer.take(length as u32).unwrap();
    assert_eq!(read_bytes(pieces.as_slice()), vec![number; length]);
    true
}

/// Runs a model with a limited number of preemptions, because trying all interleavings would take too long.
fn check(interruptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut orders = loom::model::Builder::new();
    orders.preemption_bound = Some(interruptions);
    orders.check(model);
}

#[test]
fn records_are_read_once_in_order_and_complete() {
    /// The payload length of each record. The payload of the first record wraps around, and so do the words of the
    /// fourth. The third record takes the place of the first one when that was read, and the fourth record takes the
    /// place of the second one.
    const LENGTHS: [usize; 4] = [2 * LINE + 1, LINE, LINE, LINE];
    const TRIES: usize = 4;

    loom::model(|| {
        let (mut producer, mut consumer) = ends(&ring(), WORDS);
        // The ring starts at a later offset, at which the memory is not zero.
        put(&mut producer, 9, WORDS, 2 * LINE).unwrap();
        assert!(take(&mut consumer, 9, WORDS, 2 * LINE) && !consumer.free());

        let mut count = 0;
        let mut put_next = move || {
            let is_put =
                LENGTHS.get(count).is_some_and(|&length| put(&mut producer, count as u8, WORDS, length).is_ok());
            count += usize::from(is_put);
            count
        };
        let mut taken = 0;
        let mut take_next = move || {
            let is_taken = LENGTHS.get(taken).is_some_and(|&length| take(&mut consumer, taken as u8, WORDS, length));
            taken += usize::from(is_taken);
            assert!(!consumer.free(), "no wake-up was requested");
            taken
        };
        let putting = thread::spawn(move || {
            for _ in 0..TRIES {
                put_next();
            }
            put_next
        });
        for _ in 0..TRIES {
            take_next();
        }
        // The remaining records are written and read in turn.
        let mut put_next = putting.join().unwrap();
        for _ in LENGTHS {
            put_next();
            take_next();
        }
        assert_eq!((put_next(), take_next()), (LENGTHS.len(), LENGTHS.len()));
    });
}

/// A wake-up for a thread. It stays pending until the thread sleeps. The model reports a deadlock if a thread sleeps
/// forever.
#[derive(Default)]
struct Event {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Event {
    fn set(&self) {
        *self.is_set.lock().unwrap() = true;
        self.changed.notify_one();
    }

    fn wait(&self) {
        let mut is_set = self.is_set.lock().unwrap();
        while !*is_set {
            is_set = self.changed.wait(is_set).unwrap();
        }
        *is_set = false;
    }
}

/// A process with its wake-ups and its thread.
struct Process {
    wakeup: Wakeup<u32>,
    sleeper: Sleeper,
    event: Event,
}

impl Process {
    fn new(send: Ring, receive: Ring) -> Arc<Self> {
        let sleeper = Sleeper(AtomicU8::new(Sleep::No as u8));
        Arc::new(Self { wakeup: Wakeup::new(send, receive), sleeper, event: Event::default() })
    }

    fn is_ready(&self) -> bool {
        self.wakeup.has_come() || self.wakeup.has_space()
    }

    /// Sleeps unless there is work.
    fn sleep(&self) {
        if self.sleeper.park(Sleep::UntilWoken, || self.wakeup.park(), || self.is_ready()) {
            self.event.wait();
        }
        self.sleeper.unpark();
    }
}

#[test]
fn record_wakes_a_sleeping_consumer() {
    const COUNT: u8 = 2;

    check(4, || {
        let (there, back) = (ring(), ring());
        let (mut producer, mut consumer) = ends(&there, 2);
        let from = Process::new(there.clone(), back.clone());
        let to = Process::new(back, there);
        let putting = {
            let to = Arc::clone(&to);
            thread::spawn(move || {
                for number in 0..COUNT {
                    put(&mut producer, number, 2, 0).unwrap();
                    from.wakeup.has_sent(producer.tail());
                    if from.wakeup.send.take_parked() {
                        to.event.set();
                    }
                }
            })
        };
        let mut taken = 0;
        while taken < COUNT {
            if to.wakeup.has_come() {
                assert!(take(&mut consumer, taken, 2, 0));
                to.wakeup.has_taken(consumer.head());
                taken += 1;
                assert!(!consumer.free(), "no wake-up was requested");
                to.wakeup.unpark();
            } else {
                to.sleep();
            }
        }
        putting.join().unwrap();
    });
}

/// A sender that has one record to send, and its end of the ring.
struct Sender {
    producer: Producer,
    has_record: bool,
}

impl Sender {
    /// Sends the record if there is space. Returns whether it was sent.
    fn go(&mut self, process: &Process) -> bool {
        if self.has_record {
            self.has_record = put(&mut self.producer, 3, 2, 0).is_err();
            process.wakeup.has_sent(self.producer.tail());
        }
        !self.has_record
    }
}

#[test]
fn freed_space_wakes_a_waiting_producer() {
    /// The payload length of each record in the ring. The first two records fill a quarter of the ring.
    const LENGTHS: [usize; 3] = [0, 0, 5 * LINE];

    check(2, || {
        let (there, back) = (ring(), ring());
        let (mut producer, mut consumer) = ends(&there, 2);
        for (number, &length) in LENGTHS.iter().enumerate() {
            put(&mut producer, number as u8, 2, length).unwrap();
        }
        let from = Process::new(there, back);
        from.wakeup.has_sent(producer.tail());
        let sender = Arc::new(Mutex::new(Sender { producer, has_record: true }));
        // A program finds no space, and leaves its record to the thread of the process.
        let program = {
            let (from, sender) = (Arc::clone(&from), Arc::clone(&sender));
            thread::spawn(move || {
                let go = || sender.lock().unwrap().go(&from);
                let is_done = go() || {
                    from.wakeup.wait(&from.sleeper, |waiting| *waiting += 1);
                    go()
                };
                if is_done {
                    // This wakes the thread, which then has nothing left to do.
                    from.event.set();
                }
            })
        };
        let thread = {
            let (from, sender) = (Arc::clone(&from), Arc::clone(&sender));
            thread::spawn(move || {
                while sender.lock().unwrap().has_record {
                    if from.wakeup.has_space() {
                        if from.wakeup.next_waiting(|waiting| (std::mem::take(waiting), false)) != 0
                            && !sender.lock().unwrap().go(&from)
                        {
                            from.wakeup.wait(&from.sleeper, |waiting| *waiting += 1);
                            sender.lock().unwrap().go(&from);
                        }
                        from.wakeup.unpark();
                    } else {
                        from.sleep();
                    }
                }
            })
        };
        for number in 0..2 {
            assert!(take(&mut consumer, number, 2, LENGTHS[usize::from(number)]));
            if consumer.free() {
                from.event.set();
            }
        }
        program.join().unwrap();
        thread.join().unwrap();
        assert!(take(&mut consumer, 2, 2, LENGTHS[2]) && take(&mut consumer, 3, 2, 0));
    });
}
