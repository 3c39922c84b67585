//! A lock-free stack of buffer numbers.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Free buffers of one size, the last returned first. The lower half of the word is the number of the top buffer plus one, 0 if there is
/// none. The upper half counts changes, so that a top buffer which another thread took and returned meanwhile is not mistaken for an unchanged one.
#[derive(Debug, Default)]
pub(super) struct FreeList {
    head: AtomicU64,
}

/// What a free buffer holds: the number of the next one plus one.
pub(super) type Link = AtomicU32;

impl FreeList {
    /// Takes the top buffer. `link` finds the link of a buffer by its number.
    #[inline]
    pub(super) fn pop<'a>(&self, link: impl Fn(u32) -> Option<&'a Link>) -> Option<u32> {
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let number = (head as u32).checked_sub(1)?;
            let next = link(number)?.load(Ordering::Relaxed);
            match self.head.compare_exchange_weak(head, with_next(head, next), Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(number),
                Err(now) => head = now,
            }
        }
    }

    /// How many there are, at most `most`.
    pub(super) fn count<'a>(&self, most: usize, link: impl Fn(u32) -> Option<&'a Link>) -> usize {
        let mut top = self.head.load(Ordering::Acquire) as u32;
        let mut count = 0;
        while count < most
            && let Some(link) = top.checked_sub(1).and_then(&link)
        {
            count += 1;
            top = link.load(Ordering::Relaxed);
        }
        count
    }

    /// Puts a buffer on top, whose link is `link`.
    #[inline]
    pub(super) fn push(&self, number: u32, link: &Link) {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            link.store(head as u32, Ordering::Relaxed);
            let next = with_next(head, number + 1);
            match self.head.compare_exchange_weak(head, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

fn with_next(head: u64, next: u32) -> u64 {
    ((head >> 32).wrapping_add(1) << 32) | u64::from(next)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    #[test]
    fn numbers_come_back_last_in_first_out() {
        let links: Vec<Link> = (0..3).map(|_| Link::default()).collect();
        let list = FreeList::default();
        assert_eq!(list.pop(|n| links.get(n as usize)), None);
        list.push(0, &links[0]);
        list.push(2, &links[2]);
        assert_eq!(list.pop(|n| links.get(n as usize)), Some(2));
        assert_eq!(list.pop(|n| links.get(n as usize)), Some(0));
        assert_eq!(list.pop(|n| links.get(n as usize)), None);
    }

    #[test]
    fn two_threads_never_hold_the_same_number() {
        const NUMBERS: u32 = 4;
        let rounds = if cfg!(miri) { 50 } else { 20_000 };
        let links: Vec<Link> = (0..NUMBERS).map(|_| Link::default()).collect();
        let held: Vec<AtomicU32> = (0..NUMBERS).map(|_| AtomicU32::new(0)).collect();
        let list = FreeList::default();
        (0..NUMBERS).for_each(|n| list.push(n, &links[n as usize]));
        let start = Barrier::new(2);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    start.wait();
                    for _ in 0..rounds {
                        let Some(number) = list.pop(|n| links.get(n as usize)) else { continue };
                        assert_eq!(held[number as usize].fetch_add(1, Ordering::Relaxed), 0);
                        held[number as usize].fetch_sub(1, Ordering::Relaxed);
                        list.push(number, &links[number as usize]);
                    }
                });
            }
        });
        let mut left: Vec<u32> = std::iter::from_fn(|| list.pop(|n| links.get(n as usize))).collect();
        left.sort_unstable();
        assert_eq!(left, [0, 1, 2, 3]);
    }
}
