//! Times, and what is in their middle.

use std::time::Instant;

use anyhow::Result;

/// Nanoseconds of each of so many calls.
pub fn each(count: usize, mut call: impl FnMut()) -> f64 {
    let started = Instant::now();
    for _ in 0..count {
        call();
    }
    started.elapsed().as_nanos() as f64 / count as f64
}

/// The same, of calls on one after the other.
pub fn over<T>(count: usize, on: &mut [T], mut call: impl FnMut(&mut T)) -> f64 {
    let started = Instant::now();
    let len = on.len();
    for number in 0..count {
        call(&mut on[number % len]);
    }
    started.elapsed().as_nanos() as f64 / count as f64
}

/// The median of so many measurements, after one that warms up.
///
/// # Errors
///
/// Of the first that fails.
pub fn median(rounds: usize, mut measure: impl FnMut() -> Result<f64>) -> Result<f64> {
    measure()?;
    Ok(middle((0..rounds).map(|_| measure()).collect::<Result<_>>()?))
}

/// The median of how the second's rate relates to the first's, each measured in turn.
///
/// # Errors
///
/// Of the first that fails.
pub fn median_ratio(
    rounds: usize,
    mut first: impl FnMut() -> Result<f64>,
    mut second: impl FnMut() -> Result<f64>,
) -> Result<f64> {
    first()?;
    second()?;
    Ok(middle((0..rounds).map(|_| Ok(first()? / second()?)).collect::<Result<_>>()?))
}

/// The one in the middle, or the upper of the two.
pub fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
