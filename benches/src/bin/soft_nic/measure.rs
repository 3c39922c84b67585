//! Times, and what is in their middle.

use std::time::Instant;

/// Nanoseconds of each of so many calls.
pub(crate) fn each(count: usize, mut call: impl FnMut()) -> f64 {
    let started = Instant::now();
    for _ in 0..count {
        call();
    }
    started.elapsed().as_nanos() as f64 / count as f64
}

/// The same, of calls on one after the other.
pub(crate) fn over<T>(count: usize, on: &mut [T], mut call: impl FnMut(&mut T)) -> f64 {
    let started = Instant::now();
    let len = on.len();
    for number in 0..count {
        call(&mut on[number % len]);
    }
    started.elapsed().as_nanos() as f64 / count as f64
}

/// The median of so many measurements, after one that warms up.
pub(crate) fn median(rounds: usize, mut measure: impl FnMut() -> f64) -> f64 {
    measure();
    middle((0..rounds).map(|_| measure()).collect())
}

/// The median of how the second's rate relates to the first's, each measured in turn.
pub(crate) fn median_ratio(rounds: usize, mut first: impl FnMut() -> f64, mut second: impl FnMut() -> f64) -> f64 {
    first();
    second();
    middle((0..rounds).map(|_| first() / second()).collect())
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
