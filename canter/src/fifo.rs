//! Futures that wait for something countable: first come, first served.

use std::cell::RefCell;
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

/// Leaves a place, and wakes the first future, because what this one did not take is for that one.
#[inline]
pub(crate) fn leave(fifo: &RefCell<Fifo>, ticket: &mut Option<Ticket>) {
    let Some(number) = ticket.take() else { return };
    let (own, next) = {
        let mut fifo = fifo.borrow_mut();
        let index = fifo.places.binary_search_by_key(&number, |place| place.0);
        let own = index.ok().and_then(|index| fifo.places.remove(index));
        (own, fifo.first())
    };
    // Foreign code runs here.
    drop(own);
    if let Some(waker) = next {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use super::{Fifo, leave};

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
        let (fifo, mut tickets) = (RefCell::new(Fifo::default()), [None; 3]);
        for (number, ticket) in tickets.iter_mut().enumerate() {
            assert!(fifo.borrow_mut().wait(ticket, waker(number)).is_none());
        }
        let is_first = |ticket| fifo.borrow().is_first(ticket);
        assert!(is_first(tickets[0]) && !is_first(tickets[1]) && !is_first(None));

        fifo.borrow_mut().first().expect("the first has a waker").wake();
        assert_eq!(woken(), [1, 0, 0]);
        // The first was woken and gives up, then the one in the middle.
        leave(&fifo, &mut tickets[0]);
        assert_eq!(woken(), [1, 1, 0]);
        assert!(is_first(tickets[1]));
        assert!(fifo.borrow_mut().wait(&mut tickets[1], waker(1)).is_none());
        leave(&fifo, &mut tickets[1]);
        assert_eq!(woken(), [1, 1, 1]);
        leave(&fifo, &mut tickets[2]);
        assert!(is_first(None));
    }
}
