//! Futures that wait for something countable: first come, first served.

use std::collections::VecDeque;
use std::task::Waker;

/// The number of a place in a [`Fifo`].
pub(crate) type Ticket = u64;

/// The places of the waiting futures. A future that holds a place leaves it when it got what it waits for, and when it
/// is dropped.
#[derive(Debug, Default)]
pub(crate) struct Fifo {
    next: Ticket,
    places: VecDeque<(Ticket, Option<Waker>)>,
}

impl Fifo {
    /// Whether no other future is ahead of the one with this ticket, or of a future without a ticket.
    #[inline]
    pub(crate) fn is_first(&self, ticket: Option<Ticket>) -> bool {
        self.places.front().is_none_or(|place| Some(place.0) == ticket)
    }

    /// Takes a place at the end, or keeps the place with this ticket; the waker is woken when the place may be first.
    /// Returns the earlier waker, which the caller drops outside of all borrows.
    pub(crate) fn wait(&mut self, ticket: &mut Option<Ticket>, waker: Waker) -> Option<Waker> {
        let number = *ticket.get_or_insert_with(|| {
            self.next += 1;
            self.places.push_back((self.next, None));
            self.next
        });
        let index = self.places.binary_search_by_key(&number, |place| place.0).ok()?;
        self.places.get_mut(index)?.1.replace(waker)
    }

    /// Leaves a place. Returns the waker of the first place, because what this future did not take is for that one.
    #[must_use = "the next future sleeps until it is woken"]
    pub(crate) fn leave(&mut self, ticket: &mut Option<Ticket>) -> Option<Waker> {
        let number = ticket.take()?;
        let index = self.places.binary_search_by_key(&number, |place| place.0).ok()?;
        self.places.remove(index);
        self.first()
    }

    /// The waker of the first place.
    #[inline]
    #[must_use = "the first future sleeps until it is woken"]
    pub(crate) fn first(&mut self) -> Option<Waker> {
        self.places.front_mut()?.1.take()
    }

    /// The wakers of all places, for an end that concerns each.
    pub(crate) fn all(&mut self, wakers: &mut Vec<Waker>) {
        wakers.extend(self.places.iter_mut().filter_map(|place| place.1.take()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use super::Fifo;

    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Each waiting future gets its turn, whichever futures give up.
    #[test]
    fn places_that_are_left_wake_the_next() {
        let counts: Vec<Arc<Count>> = (0..3).map(|_| Arc::new(Count(AtomicUsize::new(0)))).collect();
        let waker = |number: usize| Waker::from(Arc::clone(&counts[number]));
        let woken = || counts.iter().map(|count| count.0.load(Ordering::Relaxed)).collect::<Vec<_>>();
        let (mut fifo, mut tickets) = (Fifo::default(), [None; 3]);
        for (number, ticket) in tickets.iter_mut().enumerate() {
            assert!(fifo.wait(ticket, waker(number)).is_none());
        }
        assert!(fifo.is_first(tickets[0]) && !fifo.is_first(tickets[1]) && !fifo.is_first(None));

        fifo.first().expect("the first has a waker").wake();
        assert_eq!(woken(), [1, 0, 0]);
        // The first was woken and gives up, then the one in the middle.
        fifo.leave(&mut tickets[0]).expect("the second has a waker").wake();
        assert_eq!(woken(), [1, 1, 0]);
        assert!(fifo.is_first(tickets[1]));
        assert!(fifo.wait(&mut tickets[1], waker(1)).is_none());
        fifo.leave(&mut tickets[1]).expect("the third has a waker").wake();
        assert_eq!(woken(), [1, 1, 1]);
        assert!(fifo.leave(&mut tickets[2]).is_none() && fifo.is_first(None));
    }
}
