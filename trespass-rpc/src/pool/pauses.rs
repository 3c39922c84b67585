//! When a pool connects, and when it tries to return to RDMA, without a clock.

use std::time::{Duration, Instant};

/// The pauses after failed attempts. Each is twice as long as the one before it, up to a limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pauses {
    first: Duration,
    next: Duration,
    longest: Duration,
    until: Option<Instant>,
}

impl Pauses {
    /// Creates the state before the first pause.
    pub(super) fn new(first: Duration, longest: Duration) -> Self {
        Self { first, next: first, longest, until: None }
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }

    pub(super) fn begin(&mut self, now: Instant) {
        self.until = Some(now + self.next);
        self.next = (self.next * 2).min(self.longest);
    }

    fn reset(&mut self) {
        *self = Self::new(self.first, self.longest);
    }
}

/// The attempts to return to RDMA, one at a time. `A` is an attempt.
#[derive(Debug)]
pub(super) struct Returning<A> {
    pauses: Pauses,
    attempt: Option<A>,
}

impl<A> Returning<A> {
    pub(super) fn new(pauses: Pauses) -> Self {
        Self { pauses, attempt: None }
    }

    /// A new connection has tried RDMA already, so the next attempt waits for the first pause.
    pub(super) fn restart(&mut self, now: Instant) {
        self.pauses.reset();
        self.pauses.begin(now);
    }

    /// A call uses a connection that has fallen back. Begins an attempt if one is due, and returns the outcome of one
    /// that has ended.
    pub(super) fn step<T, E>(
        &mut self,
        now: Instant,
        begin: impl FnOnce() -> A,
        ended: impl FnOnce(&mut A) -> Option<Result<T, E>>,
    ) -> Option<Result<T, E>> {
        if self.attempt.is_none() && self.pauses.is_over(now) {
            self.attempt = Some(begin());
        }
        let outcome = ended(self.attempt.as_mut()?)?;
        self.attempt = None;
        match outcome {
            // Other connections of the pool may follow at once.
            Ok(_) => self.pauses.reset(),
            Err(_) => self.pauses.begin(now),
        }
        Some(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn attempts_to_return_are_one_at_a_time_with_growing_pauses() {
        let begun = Instant::now();
        let mut returning = Returning::new(Pauses::new(SECOND, 300 * SECOND));
        returning.restart(begun);
        let (mut attempts, mut seconds) = (0, Vec::new());
        // Many calls a second; each attempt takes two seconds, and fails.
        for call in 0..10 * 1_500 {
            let now = begun + SECOND * call / 10;
            let begin = || {
                attempts += 1;
                seconds.push(call / 10);
                now
            };
            let ended = |at: &mut Instant| (now - *at >= 2 * SECOND).then_some(Err::<(), ()>(()));
            _ = returning.step(now, begin, ended);
        }
        // The pauses are 1, 2, 4 … 256, 300, 300 s long.
        assert_eq!(seconds, [1, 5, 11, 21, 39, 73, 139, 269, 527, 829, 1_131, 1_433]);
        assert_eq!(attempts, 12);
    }

    #[test]
    fn connections_of_a_pool_return_in_turn_and_fall_back_with_a_pause() {
        let now = Instant::now();
        let mut returning = Returning::new(Pauses::new(SECOND, 300 * SECOND));
        returning.restart(now);
        assert_eq!(returning.step(now, || (), |()| Some(Ok::<_, ()>(1))), None, "the first pause");
        let later = now + SECOND;
        for number in 0..3 {
            assert_eq!(returning.step(later, || (), |()| Some(Ok::<_, ()>(number))), Some(Ok(number)));
        }
        returning.restart(later);
        assert_eq!(returning.step(later, || (), |()| Some(Ok::<_, ()>(1))), None, "a new fall-back");
    }
}
