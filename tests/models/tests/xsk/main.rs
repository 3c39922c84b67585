//! Tests the rings in every interleaving of two threads: each entry arrives once, in order and complete.

#![allow(clippy::unwrap_used, reason = "a test")]

/// Replaces the ring's primitives by those of loom, which tries all interleavings.
mod sys {
    pub(crate) mod sync {
        use std::marker::PhantomData;

        use loom::cell::UnsafeCell;
        pub(crate) use loom::sync::atomic::{AtomicU32, Ordering};

        #[derive(Debug)]
        pub(crate) struct Slots<T>(*const UnsafeCell<T>, PhantomData<T>);

        impl<T> Clone for Slots<T> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<T> Copy for Slots<T> {}

        impl<T: Copy> Slots<T> {
            pub(crate) fn new(first: *const UnsafeCell<T>) -> Self {
                Self(first, PhantomData)
            }

            pub(crate) unsafe fn read(self, position: usize) -> T {
                // SAFETY: the ring has this entry; the model ends the test if it is written meanwhile.
                unsafe { (*self.0.add(position / size_of::<T>())).with(|entry| *entry) }
            }

            pub(crate) unsafe fn write(self, position: usize, value: T) {
                // SAFETY: as above, if it is read meanwhile.
                unsafe { (*self.0.add(position / size_of::<T>())).with_mut(|entry| *entry = value) }
            }
        }
    }
}

#[path = "../../../../xsk/src/ring.rs"]
#[expect(dead_code, reason = "the test uses only a part of the module")]
mod ring;

use std::ptr::NonNull;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use self::ring::{Consumer, Producer, Ring};
use self::sys::sync::{AtomicU32, Slots};

struct Memory {
    words: [AtomicU32; 3],
    slots: Vec<UnsafeCell<u64>>,
}

// SAFETY: the model checks the accesses to the cells, which is the purpose of the test.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(size: u32) -> Arc<Self> {
        let words = [0, 0, 0].map(AtomicU32::new);
        Arc::new(Self { words, slots: (0..size).map(|_| UnsafeCell::new(0)).collect() })
    }

    fn ring(&self) -> Ring<u64> {
        let word = |at: usize| NonNull::from(&self.words[at]);
        // SAFETY: the caller keeps the memory, and makes one producer and one consumer.
        unsafe { Ring::new(word(0), word(1), word(2), Slots::new(self.slots.as_ptr()), self.slots.len() as u32) }
    }
}

#[test]
fn entries_arrive_once_and_in_order() {
    loom::model(|| {
        let memory = Memory::new(2);
        let other = Arc::clone(&memory);
        let sender = thread::spawn(move || {
            let mut producer = Producer::new(other.ring());
            let mut next = 1;
            for _ in 0..3 {
                let mut batch = producer.batch(2);
                while batch.space() != 0 && next <= 3 {
                    // SAFETY: there is space.
                    unsafe { batch.push(next) };
                    next += 1;
                }
                drop(batch);
                thread::yield_now();
            }
            next - 1
        });
        let mut consumer = Consumer::new(memory.ring());
        let mut seen = Vec::new();
        for _ in 0..3 {
            let mut batch = consumer.batch(2);
            seen.extend(std::iter::from_fn(|| batch.pop()));
            drop(batch);
            thread::yield_now();
        }
        let sent = sender.join().unwrap();
        while consumer.available() != 0 {
            let mut batch = consumer.batch(2);
            seen.extend(std::iter::from_fn(|| batch.pop()));
        }
        let expected: Vec<u64> = (1..=sent).collect();
        assert_eq!(seen, expected);
    });
}
