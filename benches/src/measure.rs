//! Times and medians.

use std::time::Instant;

use anyhow::Result;

/// Nanoseconds per call, of `count` calls.
pub fn each(count: usize, mut call: impl FnMut()) -> f64 {
    let started = Instant::now();
    for _ in 0..count {
        call();
    }
    started.elapsed().as_nanos() as f64 / count as f64
}

/// As [`each`], but calls with the elements of `on` in turn.
pub fn over<T>(count: usize, on: &mut [T], mut call: impl FnMut(&mut T)) -> f64 {
    let started = Instant::now();
    let len = on.len();
    for number in 0..count {
        call(&mut on[number % len]);
    }
    started.elapsed().as_nanos() as f64 / count as f64
}

/// The median of `rounds` measurements, after one that warms up.
///
/// # Errors
///
/// The error of the first measurement that fails.
pub fn median(rounds: usize, mut measure: impl FnMut() -> Result<f64>) -> Result<f64> {
    measure()?;
    Ok(middle((0..rounds).map(|_| measure()).collect::<Result<_>>()?))
}

/// The median ratio of the second measurement's rate to the first's; each round measures both.
///
/// # Errors
///
/// The error of the first measurement that fails.
pub fn median_ratio(
    rounds: usize,
    mut first: impl FnMut() -> Result<f64>,
    mut second: impl FnMut() -> Result<f64>,
) -> Result<f64> {
    first()?;
    second()?;
    Ok(middle((0..rounds).map(|_| Ok(first()? / second()?)).collect::<Result<_>>()?))
}

/// The middle value, or the upper of the two middle values.
pub fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
