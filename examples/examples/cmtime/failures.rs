//! Connections that did not get through, counted by what was wrong.

use std::fmt;

use super::step::Step;

/// At the end this is the error of the program.
#[derive(Debug, Default)]
pub(crate) struct Failures(Vec<Failure>);

#[derive(Debug)]
struct Failure {
    step: Step,
    why: String,
    count: usize,
}

impl Failures {
    /// Counts one more.
    pub(crate) fn count(&mut self, step: Step, why: impl fmt::Display) {
        self.enter(Failure { step, why: why.to_string(), count: 1 });
    }

    /// Counts those as well.
    pub(crate) fn add(&mut self, others: Self) {
        others.0.into_iter().for_each(|failure| self.enter(failure));
    }

    fn enter(&mut self, new: Failure) {
        match self.0.iter_mut().find(|failure| failure.step == new.step && failure.why == new.why) {
            Some(failure) => failure.count += new.count,
            None => self.0.push(new),
        }
    }

    /// How many there are in all.
    pub(crate) fn total(&self) -> usize {
        self.0.iter().map(|failure| failure.count).sum()
    }
}

/// `connect: rejected: nobody listens there (2); resolve addr: ...`, the most frequent first.
impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 4;
        let mut failures: Vec<&Failure> = self.0.iter().collect();
        failures.sort_by_key(|failure| std::cmp::Reverse(failure.count));
        let hidden = failures.len().saturating_sub(SHOWN);
        for (index, Failure { step, why, count }) in failures.into_iter().take(SHOWN).enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{}: {why} ({count})", step.name())?;
        }
        if hidden > 0 {
            write!(f, "; and {hidden} other reasons")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_alike_is_one_reason_and_the_most_frequent_comes_first() {
        let mut failures = Failures::default();
        failures.count(Step::Connect, "no");
        failures.count(Step::ResolveAddress, "no way");
        let mut others = Failures::default();
        others.count(Step::ResolveAddress, "no way");
        others.count(Step::ResolveAddress, "no way");
        others.count(Step::Connect, "no");
        failures.add(others);
        assert_eq!(failures.total(), 5);
        assert_eq!(failures.to_string(), "resolve addr: no way (3); connect: no (2)");
        for reason in ["a", "b", "c"] {
            failures.count(Step::Bind, reason);
        }
        assert!(failures.to_string().ends_with("bind addr: b (1); and 1 other reasons"), "{failures}");
    }
}
