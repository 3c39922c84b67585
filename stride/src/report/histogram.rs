//! Formats a histogram for the terminal.

use std::io::{Result, Write};

use super::{Style, fixed};
use crate::stats::Latency;

/// Maximum number of lines that have the same width.
const LINES: usize = 20;

/// Maximum width of a bin, as a fraction of its upper end.
const BIN: f64 = 1.0 / 128.0;

/// Number of columns before the bar, which contain the upper end of the line and its share.
const LABELS: usize = 25;

/// Writes a histogram that is `columns` wide. Lines of equal width reach up to the 99th percentile. Then there is one
/// line each up to p99.9, p99.99 and the maximum.
///
/// # Errors
///
/// Returns any error of the writer `out`.
pub fn write(out: &mut dyn Write, latency: &Latency, columns: usize, style: Style) -> Result<()> {
    if latency.histogram.is_empty() {
        return writeln!(out, "no times of single messages");
    }
    let lines = lines(latency);
    let most = lines.iter().map(|line| line.count).fold(0.0, f64::max);
    let width = columns.saturating_sub(LABELS).max(10);
    let (dim, drawn) = (style.dim, style.bar);
    let decimals = decimals(latency.samples);
    for line in lines {
        let share = fixed(100.0 * line.count / latency.samples as f64, 7, decimals);
        let end = fixed(line.end / 1000.0, 9, 3);
        let bar = bar(line.count / most, width);
        writeln!(out, "≤ {end:>9} us {dim}{share:>7} %{dim:#} {drawn}{bar}{drawn:#}")?;
    }
    Ok(())
}

/// Returns the number of decimals that a percentage needs, so that a single sample among `samples` samples can be seen.
fn decimals(samples: u64) -> usize {
    [100, 1000, 10_000].iter().filter(|most| samples > **most).count()
}

/// A line of the histogram, with its upper end and its number of samples.
struct Line {
    end: f64,
    count: f64,
}

fn lines(latency: &Latency) -> Vec<Line> {
    let mut lines: Vec<_> = ends(latency).into_iter().map(|end| Line { end, count: 0.0 }).collect();
    let mut before = f64::NEG_INFINITY;
    for &(end, count) in &latency.histogram {
        let bin = (before.max(end * (1.0 - BIN)).max(latency.min).min(end), end);
        let mut start = f64::NEG_INFINITY;
        for line in &mut lines {
            line.count += count as f64 * overlap(bin, (start, line.end));
            start = line.end;
        }
        before = end;
    }
    whole(&mut lines);
    lines
}

/// Rounds the number of samples of each line to an integer and keeps the total. The numbers can be fractions because a
/// bin may overlap two lines.
fn whole(lines: &mut [Line]) {
    let (mut exact, mut counted) = (0.0, 0.0);
    for line in lines {
        exact += line.count;
        line.count = f64::round(exact) - counted;
        counted += line.count;
    }
}

/// Returns the upper ends of all lines.
fn ends(latency: &Latency) -> Vec<f64> {
    let mut ends = body(latency);
    for end in [latency.p99_9, latency.p99_99, latency.max] {
        if ends.last().is_none_or(|last| *last < end) {
            ends.push(end);
        }
    }
    ends
}

/// Returns the upper ends of the lines that have equal width. If the clock is so coarse that each bin contains one
/// tick, there is a line per tick.
fn body(latency: &Latency) -> Vec<f64> {
    let limit = latency.p99.min(latency.max);
    let bins: Vec<_> = latency.histogram.iter().map(|bin| bin.0).take_while(|end| *end <= limit).collect();
    if bins.len() <= LINES && bins.windows(2).all(|ends| ends[1] - ends[0] > ends[1] * BIN) {
        return bins;
    }
    let range = limit - latency.min;
    let count = (range / (limit * BIN)).clamp(1.0, LINES as f64) as usize;
    (1..=count).map(|line| latency.min + range * line as f64 / count as f64).collect()
}

/// Returns which share of a bin overlaps a line.
fn overlap(bin: (f64, f64), line: (f64, f64)) -> f64 {
    if bin.1 <= bin.0 {
        return f64::from(u8::from(line.0 < bin.1 && bin.1 <= line.1));
    }
    ((bin.1.min(line.1) - bin.0.max(line.0)) / (bin.1 - bin.0)).max(0.0)
}

/// Returns a bar whose length is `share` of `width`, in steps of an eighth of a column. If the share is not zero, the
/// bar has at least one step.
fn bar(share: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    if share <= 0.0 || !share.is_finite() {
        return String::new();
    }
    let eighths = ((share * (width * 8) as f64).round() as usize).max(1);
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Semantics;
    use crate::report::sample;

    fn text(ticks: &[u64], columns: usize) -> String {
        let latency = Latency::of(ticks.iter().copied(), 1.0, Semantics::Ack).unwrap();
        sample::written(|out| write(out, &latency, columns, Style::plain()))
    }

    #[test]
    fn coarse_ticks_have_a_line_each() {
        let expected = "≤     0.010 us      75 % ██████████\n≤     0.012 us      25 % ███▍\n";
        assert_eq!(text(&[10, 10, 12, 10], 32), expected);
    }

    #[test]
    fn shares_have_the_precision_of_the_samples() {
        let ticks: Vec<u64> = (0..500).map(|i| 1000 + (i * i) % 1777).collect();
        let text = text(&ticks, 80);
        let shares: Vec<_> = text.lines().map(|line| line[16..].split_whitespace().next().unwrap()).collect();
        assert!(shares.len() > 10, "{text}");
        for share in shares {
            let (_, decimal) = share.split_once('.').expect("a decimal");
            assert!(["0", "2", "4", "6", "8"].contains(&decimal), "of 500 one is 0.2 %: {text}");
        }
        assert_eq!([1, 100, 101, 1000, 1001, 10_000, 10_001].map(decimals), [0, 0, 1, 1, 2, 2, 3]);
    }

    #[test]
    fn tail_percentiles_have_their_own_lines() {
        let mut ticks: Vec<u64> = (0..100_000).map(|i| 1000 + i % 1000).collect();
        ticks.extend([5_000_000; 3]);
        let text = text(&ticks, 80);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), LINES + 2, "{text}");
        assert_eq!(lines[LINES + 1], "≤  5000.000 us   0.003 % ▏");
        for line in &lines[..LINES] {
            assert!(line.contains("  5.") || line.contains("  4."), "evenly distributed times give even lines: {text}");
        }
    }

    #[test]
    fn missing_histogram_is_reported() {
        let unknown = Latency {
            samples: 5,
            histogram: Vec::new(),
            p99: f64::NAN,
            ..Latency::of([1u32], 1.0, Semantics::Ack).unwrap()
        };
        let text = sample::written(|out| write(out, &unknown, 80, Style::plain()));
        assert_eq!(text, "no times of single messages\n");
    }

    #[test]
    fn bins_of_two_widths_do_not_distort() {
        // Above 1024, bins are twice as wide as below.
        let ticks: Vec<u64> = (0..60_000).map(|i| 1000 + i % 60).collect();
        let latency = Latency::of(ticks, 1.0, Semantics::Ack).unwrap();
        let lines = lines(&latency);
        assert!(lines.len() > 4);
        let of_time = |line: &Line, start: f64| line.count / (line.end - start);
        for pair in lines.windows(3).take(lines.len() - 3) {
            let (one, next) = (of_time(&pair[1], pair[0].end), of_time(&pair[2], pair[1].end));
            assert!((one / next - 1.0).abs() < 0.2, "{one} {next}");
        }
    }

    #[test]
    fn lines_fit_the_terminal() {
        let ticks: Vec<u64> = (0..10_000).map(|i| 1000 + (i * i) % 100_000).collect();
        for columns in [40, 80, 200] {
            let text = text(&ticks, columns);
            let longest = text.lines().map(|line| line.chars().count()).max();
            assert_eq!(longest, Some(columns), "{text}");
        }
        assert!(text(&ticks, 0).lines().all(|line| line.chars().count() <= LABELS + 10));
    }

    #[test]
    fn shares_add_up_to_100_percent() {
        let ticks: Vec<u64> = (0..10_000).map(|i| 1000 + (i * i) % 100_000).collect();
        let latency = Latency::of(ticks, 1.0, Semantics::Ack).unwrap();
        let sum: f64 = lines(&latency).iter().map(|line| line.count).sum();
        assert!((sum - 10_000.0).abs() < 1.0, "{sum}");
    }
}
