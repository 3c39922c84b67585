//! The two ways to change a counter, each from all queue pairs at once.

use std::fmt;
use std::sync::Barrier;
use std::thread;

use anyhow::{Result, anyhow, bail};

use super::message::Counter;
use super::worker::Worker;

/// What one queue pair did.
#[derive(Clone, Debug)]
pub(crate) struct Steps {
    pub(crate) qp_num: u32,
    /// What the counter was before each of its steps.
    pub(crate) found: Vec<u64>,
    /// Attempts that came too late.
    pub(crate) in_vain: u64,
}

/// Each queue pair adds so often; the device of the peer reads, adds and writes in one.
pub(crate) fn fetch_and_add(workers: &mut [Worker], counter: Counter, iters: u32, add: u64) -> Result<Vec<Steps>> {
    at_once(workers, |worker| {
        let found = (0..iters).map(|_| worker.fetch_add(counter, add)).collect::<Result<_>>()?;
        Ok((found, 0))
    })
}

/// The same where only the swap is in one: who finds another value than expected has come too late and tries again with that.
pub(crate) fn compare_and_swap(workers: &mut [Worker], counter: Counter, iters: u32, add: u64) -> Result<Vec<Steps>> {
    at_once(workers, |worker| {
        // At first a guess; when it is wrong, the answer tells the value.
        let mut expected = 0_u64;
        let mut found = Vec::with_capacity(iters as usize);
        let mut in_vain = 0;
        while found.len() < iters as usize {
            let next = expected.wrapping_add(add);
            let was = worker.compare_swap(counter, expected, next)?;
            if was == expected {
                found.push(was);
                expected = next;
            } else {
                in_vain += 1;
                expected = was;
            }
        }
        Ok((found, in_vain))
    })
}

/// Gives each worker a thread, and lets all begin together.
fn at_once(workers: &mut [Worker], work: impl Fn(&mut Worker) -> Result<(Vec<u64>, u64)> + Sync) -> Result<Vec<Steps>> {
    let barrier = Barrier::new(workers.len());
    thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter_mut()
            .map(|worker| {
                let (barrier, work) = (&barrier, &work);
                scope.spawn(move || {
                    barrier.wait();
                    let (found, in_vain) = work(worker)?;
                    Ok(Steps { qp_num: worker.address().qp_num, found, in_vain })
                })
            })
            .collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| thread.join().map_err(|_| anyhow!("a thread panicked"))?;
        threads.into_iter().map(join).collect()
    })
}

/// Checks that the steps, in the order of what they found, go from `start` on, each from where the one before ended.
///
/// # Errors
///
/// Two found the same value, or a step is missing.
pub(crate) fn check(steps: &[Steps], start: u64, add: u64) -> Result<()> {
    // Counted from the start, so that the counter may wrap on the way.
    let mut found: Vec<u64> = steps.iter().flat_map(|steps| &steps.found).map(|was| was.wrapping_sub(start)).collect();
    found.sort_unstable();
    for (expected, &was) in (0_u64..).map(|number| number.wrapping_mul(add)).zip(&found) {
        if was != expected {
            bail!(
                "a step began at {} and none at {}: the operations were not atomic, or somebody else changed the counter",
                was.wrapping_add(start),
                expected.wrapping_add(start)
            );
        }
    }
    Ok(())
}

/// A line for each queue pair.
pub(crate) struct Table<'a>(pub(crate) &'a [Steps]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_vain = self.0.iter().any(|steps| steps.in_vain > 0);
        write!(f, "  queue pair  steps  first found  last found")?;
        writeln!(f, "{}", if has_vain { "  too late" } else { "" })?;
        for Steps { qp_num, found, in_vain } in self.0 {
            let value = |value: Option<&u64>| value.map_or_else(|| "-".to_owned(), u64::to_string);
            let (first, last) = (value(found.first()), value(found.last()));
            write!(f, "  {qp_num:#08x}  {:>7}  {first:>11}  {last:>10}", found.len())?;
            if has_vain {
                write!(f, "  {in_vain:>8}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(found: &[u64]) -> Steps {
        Steps { qp_num: 0x11, found: found.to_vec(), in_vain: 0 }
    }

    #[test]
    fn steps_of_several_make_one_row() {
        check(&[steps(&[5, 8]), steps(&[6, 7])], 5, 1).unwrap();
        check(&[steps(&[0, 30]), steps(&[10, 20])], 0, 10).unwrap();
        check(&[steps(&[u64::MAX - 1, 0]), steps(&[1])], u64::MAX - 1, 2).unwrap_err();
        check(&[steps(&[u64::MAX - 1, 2]), steps(&[0])], u64::MAX - 1, 2).unwrap();
    }

    #[test]
    fn a_lost_step_is_found() {
        let error = check(&[steps(&[0, 1]), steps(&[1, 2])], 0, 1).unwrap_err().to_string();
        assert!(error.starts_with("a step began at 1 and none at 2"), "{error}");
        let error = check(&[steps(&[0, 1]), steps(&[3])], 0, 1).unwrap_err().to_string();
        assert!(error.starts_with("a step began at 3 and none at 2"), "{error}");
    }

    #[test]
    fn the_table_has_a_line_for_each() {
        let mut some = [steps(&[0, 3]), steps(&[1, 2])];
        let expected = "  queue pair  steps  first found  last found\n  \
                        0x000011        2            0           3\n  \
                        0x000011        2            1           2\n";
        assert_eq!(Table(&some).to_string(), expected);
        some[1].in_vain = 7;
        assert!(Table(&some).to_string().ends_with("           2         7\n"), "{}", Table(&some));
    }
}
