//! What each thread records on the data path, until the writer takes it: without locks, allocations or system calls.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::moment::{Moment, WORDS};

/// The number of moments that fit: the writer empties the rings many times a second.
const MOMENTS: usize = 1 << 13;

/// A ring of one thread.
#[derive(Debug)]
struct Ring {
    words: Box<[AtomicU64]>,
    written: AtomicU64,
    read: AtomicU64,
    /// Moments that did not fit.
    dropped: AtomicU64,
    /// The thread has ended.
    is_left: AtomicBool,
}

impl Ring {
    fn new() -> Self {
        Self {
            words: (0..MOMENTS * WORDS).map(|_| AtomicU64::new(0)).collect(),
            written: AtomicU64::new(0),
            read: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            is_left: AtomicBool::new(false),
        }
    }

    fn slot(&self, index: u64) -> &[AtomicU64] {
        let first = (index as usize % MOMENTS) * WORDS;
        &self.words[first..first + WORDS]
    }

    fn push(&self, moment: Moment) {
        let index = self.written.load(Ordering::Relaxed);
        if index - self.read.load(Ordering::Acquire) >= MOMENTS as u64 {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        for (word, value) in self.slot(index).iter().zip(moment.to_words()) {
            word.store(value, Ordering::Relaxed);
        }
        self.written.store(index + 1, Ordering::Release);
    }

    fn take(&self, to: &mut Vec<Moment>) {
        let written = self.written.load(Ordering::Acquire);
        for index in self.read.load(Ordering::Relaxed)..written {
            let mut words = [0; WORDS];
            for (value, word) in words.iter_mut().zip(self.slot(index)) {
                *value = word.load(Ordering::Relaxed);
            }
            to.push(Moment::of_words(words));
        }
        self.read.store(written, Ordering::Release);
    }
}

static RINGS: Mutex<Vec<Arc<Ring>>> = Mutex::new(Vec::new());

/// The ring of this thread, which is marked when the thread ends.
struct Own(Arc<Ring>);

impl Drop for Own {
    fn drop(&mut self) {
        self.0.is_left.store(true, Ordering::Release);
    }
}

thread_local! {
    static OWN: OnceCell<Own> = const { OnceCell::new() };
}

/// Records a moment of this thread. While a thread ends, it records nothing.
pub(super) fn push(moment: Moment) {
    let _ = OWN.try_with(|own| {
        own.get_or_init(|| {
            let ring = Arc::new(Ring::new());
            lock().push(Arc::clone(&ring));
            Own(ring)
        })
        .0
        .push(moment);
    });
}

/// Appends what all threads have recorded. Returns how many moments did not fit since the last call.
pub(super) fn take(to: &mut Vec<Moment>) -> u64 {
    let mut rings = lock();
    let dropped = rings
        .iter()
        .map(|ring| {
            ring.take(to);
            ring.dropped.swap(0, Ordering::Relaxed)
        })
        .sum();
    rings.retain(|ring| !ring.is_left.load(Ordering::Acquire) || !ring.is_empty());
    dropped
}

impl Ring {
    fn is_empty(&self) -> bool {
        self.written.load(Ordering::Acquire) == self.read.load(Ordering::Relaxed)
    }
}

fn lock() -> std::sync::MutexGuard<'static, Vec<Arc<Ring>>> {
    RINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted() {
        let ring = Ring::new();
        let total = MOMENTS as u64 + 5;
        (0..total).for_each(|at| ring.push(Moment { at, ..Moment::default() }));
        let mut taken = Vec::new();
        ring.take(&mut taken);
        assert_eq!(taken.len(), MOMENTS);
        assert!(taken.iter().enumerate().all(|(index, moment)| moment.at == index as u64));
        assert_eq!(ring.dropped.load(Ordering::Relaxed), 5);
        ring.push(Moment { at: total, ..Moment::default() });
        taken.clear();
        ring.take(&mut taken);
        assert_eq!(taken.iter().map(|moment| moment.at).collect::<Vec<_>>(), [total]);
        assert!(ring.is_empty());
    }
}
