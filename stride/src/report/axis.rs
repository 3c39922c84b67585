//! Selects and formats the labels of axes.

use std::ops::Range;

/// The range of values that are plotted. Other values cannot be real measurements.
pub(super) const DRAWN: Range<f64> = 1e-9..1e15;

/// Maximum number of labels on an axis.
const LABELS: usize = 12;

/// Selects labels from many values: all of them, or every second one, or every third one, and so on.
pub(super) fn some(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values.dedup();
    let step = values.len().div_ceil(LABELS).max(1);
    values.into_iter().step_by(step).collect()
}

/// Returns the labels of a logarithmic axis. The labels are 1, 2 and 5 times each power of ten. If these are too many,
/// the labels are the powers of ten alone. If these are too few, the labels have even steps.
pub(super) fn steps(range: &Range<f64>) -> Vec<f64> {
    let powers = |of: &[f64]| {
        let exponents = range.start.log10().floor() as i32..=range.end.log10().ceil() as i32;
        let all = exponents.flat_map(|exponent| of.iter().map(move |one| one * 10f64.powi(exponent)));
        all.filter(|value| range.contains(value)).collect::<Vec<_>>()
    };
    let some = powers(&[1.0, 2.0, 5.0]);
    match some.len() {
        0..=3 => even(range),
        4..=LABELS => some,
        _ => powers(&[1.0]),
    }
}

/// Returns four to eight multiples of a round number.
pub(super) fn even(range: &Range<f64>) -> Vec<f64> {
    let least = (range.end - range.start) / 8.0;
    let power = 10f64.powi(least.log10().floor() as i32);
    let step = [1.0, 2.0, 5.0].into_iter().map(|one| one * power).find(|step| *step >= least).unwrap_or(10.0 * power);
    let first = (range.start / step).ceil();
    (0..=8).map(|more| (first + f64::from(more)) * step).take_while(|value| range.contains(value)).collect()
}

/// Returns the least distance between labels, or the label if it is the only one.
pub(super) fn distance(labels: &[f64]) -> f64 {
    let pairs = labels.windows(2).map(|pair| pair[1] - pair[0]);
    pairs.min_by(f64::total_cmp).or(labels.first().copied()).unwrap_or(1.0)
}

/// Maximum length of a label that is not in scientific notation.
const WIDTH: usize = 8;

/// Formats a label with as few decimals as possible, but so that it differs from one at this distance.
pub(super) fn short(value: f64, distance: f64) -> String {
    let digit = |value: f64| value.abs().log10().floor();
    let decimals = |digits: f64| digits.clamp(0.0, 15.0) as usize;
    let trimmed = |text: &str| {
        let whole = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text };
        whole.to_owned()
    };
    let plain = trimmed(&format!("{value:.*}", decimals(-digit(distance))));
    if plain.len() <= WIDTH || value == 0.0 {
        return plain;
    }
    let scientific = format!("{value:.*e}", decimals(digit(value) - digit(distance)));
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    format!("{}e{exponent}", trimmed(mantissa))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(labels: &[f64]) -> Vec<String> {
        labels.iter().map(|label| short(*label, distance(labels))).collect()
    }

    fn named(range: Range<f64>) -> Vec<String> {
        texts(&steps(&range))
    }

    #[test]
    fn labels_cover_any_range() {
        assert_eq!(named(0.9..40.0), ["1", "2", "5", "10", "20"]);
        assert_eq!(named(0.9..1.4e5), ["1", "10", "100", "1000", "10000", "100000"]);
        assert_eq!(named(2.0..3.1), ["2", "2.2", "2.4", "2.6", "2.8", "3"]);
        assert_eq!(named(0.93..1.31), ["0.95", "1", "1.05", "1.1", "1.15", "1.2", "1.25", "1.3"]);
        assert_eq!(named(1.0..1.0).len(), 0);
    }

    #[test]
    fn small_and_large_labels_differ() {
        assert_eq!(texts(&even(&(0.0..0.000_41))), ["0", "0.0001", "0.0002", "0.0003", "0.0004"]);
        assert_eq!(named(0.0009..0.04), ["0.001", "0.002", "0.005", "0.01", "0.02"]);
        assert_eq!(named(0.9e10..40e10), ["1e10", "2e10", "5e10", "1e11", "2e11"]);
        assert_eq!(texts(&[1.2e10, 1.25e10]), ["1.2e10", "1.25e10"]);
        assert_eq!(texts(&[1e-9, 2e-9, 5.000_000_000_000_001e-9]), ["1e-9", "2e-9", "5e-9"]);
        assert_eq!(texts(&[100_000.0, 200_000.0]), ["100000", "200000"]);
    }

    #[test]
    fn many_sizes_are_thinned_out() {
        assert_eq!(some(vec![8.0, 2.0, 8.0]), [2.0, 8.0]);
        assert_eq!(some((0..24).map(f64::from).collect()).len(), 12);
        assert!(some(Vec::new()).is_empty());
    }
}
