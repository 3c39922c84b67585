//! By when everything is to have happened.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::Timeout;

/// The end of a time that begins when this is made.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    limit: Timeout,
    end: Option<Instant>,
}

impl Deadline {
    /// So long from now. A time that the clock has no room for is without limit.
    pub fn after(limit: Timeout) -> Self {
        Self { limit, end: limit.0.and_then(|limit| Instant::now().checked_add(limit)) }
    }

    /// What is left of the time; `None` is without limit.
    ///
    /// # Errors
    ///
    /// Nothing is left; the sentence names `what` has not happened.
    pub fn left(&self, what: &str) -> Result<Option<Duration>> {
        let left = self.end.map(|end| end.saturating_duration_since(Instant::now()));
        match (left, self.limit.0) {
            (Some(Duration::ZERO), Some(limit)) => bail!("{what} within {} s (--timeout)", limit.as_secs_f64()),
            _ => Ok(left),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_is_over_is_a_sentence() {
        assert_eq!(Deadline::after(Timeout(None)).left("nothing came").unwrap(), None);
        assert_eq!(Deadline::after(Timeout(Some(Duration::MAX))).left("nothing came").unwrap(), None);
        let left = Deadline::after(Timeout(Some(Duration::from_secs(1000)))).left("nothing came").unwrap();
        assert!(left.is_some_and(|left| left <= Duration::from_secs(1000)));
        let error = Deadline::after(Timeout(Some(Duration::ZERO))).left("nothing came").unwrap_err();
        assert_eq!(error.to_string(), "nothing came within 0 s (--timeout)");
    }
}
