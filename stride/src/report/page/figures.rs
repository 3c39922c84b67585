//! The charts of runs: figures by size, percentiles of latencies, and bandwidth over time.

use super::chart::{Axis, Chart, Curve, Point, is_drawn};
use super::html::Html;
use crate::plan::Measure;
use crate::report::row::middle_of;
use crate::report::{Row, Series, bytes_in_words, fixed};
use crate::stats::Bandwidth;

/// Maximum number of sizes in one chart, and of sizes with a chart of their own.
const TOGETHER: usize = 7;
const ALONE: usize = 32;

/// Maximum number of intervals in a curve. More intervals are merged.
const INTERVALS: usize = 500;

/// A value that is measured for one size, and the curve of that size.
struct OfSize {
    size: u64,
    row: Row,
    /// The number of the series.
    number: usize,
    curve: Curve,
}

/// Appends all charts of these series.
pub(super) fn write(html: &mut Html, series: &[Series]) {
    let mut measures: Vec<Measure> = Vec::new();
    for one in series {
        if !measures.contains(&one.measure) {
            measures.push(one.measure);
        }
    }
    for measure in measures {
        let alike: Vec<_> = series.iter().enumerate().filter(|(_, one)| one.measure == measure).collect();
        match measure {
            Measure::Bandwidth => {
                by_size(html, "Bandwidth", &alike, bandwidths);
                of_sizes(html, "Bandwidth over time", &alike, over_time, |curves| {
                    let seconds: Vec<_> = all(curves, |point| point.x);
                    (Axis::from_zero("time, s", &seconds), Axis::from_zero("Gb/s", &all(curves, |point| point.y)))
                });
            }
            Measure::Latency(semantics) => {
                by_size(html, &format!("Latency ({semantics})"), &alike, latencies);
                of_sizes(html, &format!("Latency ({semantics}) by percentile"), &alike, percentiles, |curves| {
                    let most = all(curves, |point| point.x).into_iter().fold(1.0, f64::max);
                    (Axis::percentiles(most), Axis::log("latency, us", &all(curves, |point| point.y)))
                });
            }
        }
    }
}

type Numbered<'a> = [(usize, &'a Series)];

/// Returns the name of each series, with its operation if the series differ in it.
fn names(series: &Numbered<'_>) -> Vec<String> {
    let is_same = series.windows(2).all(|pair| pair[0].1.kind() == pair[1].1.kind());
    let name = |one: &Series| match one.kind() {
        kind if is_same || kind.is_empty() => one.name.clone(),
        kind => format!("{} ({kind})", one.name),
    };
    series.iter().map(|(_, one)| name(one)).collect()
}

/// Returns the title of a chart, with the operation of its series if it is the same for all.
fn title(title: &str, series: &Numbered<'_>) -> String {
    let kind = series.first().map(|(_, one)| one.kind()).unwrap_or_default();
    let is_same = series.iter().all(|(_, one)| one.kind() == kind);
    if is_same && !kind.is_empty() { format!("{title}: {kind}") } else { title.to_owned() }
}

fn all(curves: &[Curve], of: fn(&Point) -> f64) -> Vec<f64> {
    curves.iter().flat_map(|curve| curve.points.iter().map(of)).collect()
}

/// Appends a chart of values over the message size.
fn by_size(html: &mut Html, name: &str, series: &Numbered<'_>, of: fn(&str, usize, &[Row]) -> Vec<Curve>) {
    let each = names(series).into_iter().zip(series);
    let curves: Vec<_> = each.flat_map(|(name, (number, one))| of(&name, *number, &sorted(&one.rows))).collect();
    let curves: Vec<_> = curves.into_iter().filter(|curve| !curve.points.is_empty()).collect();
    if all(&curves, |point| point.x).is_empty() {
        return;
    }
    let label = if curves.iter().any(|curve| !curve.band.is_empty()) {
        "Gb/s (area: slowest to fastest interval)"
    } else if name.starts_with("Latency") {
        "latency, us"
    } else {
        "Gb/s"
    };
    let values: Vec<_> =
        curves.iter().flat_map(|curve| curve.band.iter().flat_map(|&[_, low, high]| [low, high])).collect();
    let values = values.into_iter().filter(|value| *value > 0.0).collect();
    let values = [values, all(&curves, |point| point.y)].concat();
    let (x, y) = (Axis::sizes(all(&curves, |point| point.x)), Axis::log(label, &values));
    Chart { title: title(name, series), x, y, curves }.draw(html);
}

fn sorted(rows: &[Row]) -> Vec<Row> {
    let mut rows: Vec<_> = rows.iter().filter(|row| row.size > 0).cloned().collect();
    rows.sort_by_key(|row| row.size);
    rows
}

fn bandwidths(name: &str, colour: usize, rows: &[Row]) -> Vec<Curve> {
    let value = |row: &Row| row.average().map(|rates| rates.gigabits_per_second).filter(|value| is_drawn(*value));
    let point = |row: &Row| {
        let more = row.average().map_or(0.0, |rates| rates.messages_per_second / 1e6);
        Some(Point { x: row.size as f64, y: value(row)?, more })
    };
    let band = |row: &Row| {
        // Where an interval has no messages, the area reaches the axis.
        let [slowest, _, fastest] = row.jitter()?.map(|rates| rates.gigabits_per_second);
        let is_shown = (slowest == 0.0 || is_drawn(slowest)) && is_drawn(fastest);
        is_shown.then_some([row.size as f64, slowest, fastest])
    };
    let describe = |curve: &Curve, point: &Point| {
        let (size, rate) = (bytes_in_words(point.x as u64), fixed(point.more, 9, 6));
        format!("{}\n{size}: {} Gb/s, {rate} Mmsg/s", curve.name, fixed(point.y, 9, 3))
    };
    let (points, band) = (rows.iter().filter_map(point).collect(), rows.iter().filter_map(band).collect());
    vec![Curve { name: name.to_owned(), colour, is_second: false, points, band, describe }]
}

fn latencies(name: &str, colour: usize, rows: &[Row]) -> Vec<Curve> {
    let curve = |what: &str, is_second: bool, of: fn(&Row) -> Option<f64>| {
        let name = format!("{name} {what}");
        let point = |row: &Row| {
            let y = of(row).map(|nanoseconds| nanoseconds / 1000.0).filter(|value| is_drawn(*value))?;
            Some(Point { x: row.size as f64, y, more: 0.0 })
        };
        let describe = |curve: &Curve, point: &Point| {
            format!("{}\n{}: {} us", curve.name, bytes_in_words(point.x as u64), fixed(point.y, 9, 3))
        };
        let points = rows.iter().filter_map(point).collect();
        Curve { name, colour, is_second, points, band: Vec::new(), describe }
    };
    vec![
        curve(middle_of(rows), false, |row| row.latency().map(|latency| latency.middle())),
        curve("p99", true, |row| row.latency().map(|latency| latency.p99)),
    ]
}

/// Appends charts of which each has the curves of one size, and a chart with several sizes if there is only one series.
/// The script of the page shows one of them at a time.
fn of_sizes(
    html: &mut Html,
    name: &str,
    series: &Numbered<'_>,
    of: fn(&str, usize, &Row) -> Option<Curve>,
    axes: fn(&[Curve]) -> (Axis, Axis),
) {
    let mut found = Vec::new();
    for (name, (number, one)) in names(series).into_iter().zip(series) {
        for row in sorted(&one.rows) {
            found.extend(of(&name, *number, &row).map(|curve| OfSize { size: row.size, row, number: *number, curve }));
        }
    }
    let mut sizes: Vec<_> = found.iter().map(|one| one.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    if sizes.is_empty() {
        return;
    }
    let draw = |html: &mut Html, label: &str, curves: Vec<Curve>| {
        let (x, y) = axes(&curves);
        let title = format!("{}, {label}", title(name, series));
        html.add("<section data-name=\"{}\">\n", &[&label]);
        let mut chart = Chart { title, x, y, curves };
        chart.thin();
        chart.draw(html);
        html.raw("</section>\n");
    };
    html.raw("<div class=\"choice\" data-name=\"size\">\n");
    if found.iter().all(|one| one.number == found[0].number) && sizes.len() > 1 {
        let some = spread(&sizes, TOGETHER);
        let curve = |(colour, size): (usize, &u64)| {
            let row = &found.iter().find(|one| one.size == *size)?.row;
            of(&bytes_in_words(*size), colour, row)
        };
        draw(html, "several sizes", some.iter().enumerate().filter_map(curve).collect());
    }
    let alone = spread(&sizes, ALONE);
    for size in alone {
        let (these, rest) = found.into_iter().partition(|one| one.size == size);
        found = rest;
        draw(html, &bytes_in_words(size), these.into_iter().map(|one: OfSize| one.curve).collect());
    }
    html.raw("</div>\n");
}

/// Returns at most `most` sizes, which include the smallest and the largest.
fn spread(sizes: &[u64], most: usize) -> Vec<u64> {
    if sizes.len() <= most {
        return sizes.to_vec();
    }
    (0..most).map(|at| sizes[at * (sizes.len() - 1) / (most - 1)]).collect()
}

/// Returns a curve without an area, or `None` if it has no points.
fn line(name: &str, colour: usize, points: Vec<Point>, describe: fn(&Curve, &Point) -> String) -> Option<Curve> {
    let name = name.to_owned();
    (!points.is_empty()).then_some(Curve { name, colour, is_second: false, points, band: Vec::new(), describe })
}

/// The rates of the intervals of a size.
fn over_time(name: &str, colour: usize, row: &Row) -> Option<Curve> {
    let bandwidth = row.bandwidth().filter(|one| is_drawn(one.interval) && one.intervals.len() > 1)?;
    let merged = (bandwidth.intervals.len() / INTERVALS + 1).next_power_of_two();
    let Bandwidth { intervals, interval, .. } = bandwidth.clone().with_interval(bandwidth.interval * merged as f64);
    let point = |(at, &messages): (usize, &u64)| {
        let x = (at + 1) as f64 * interval;
        let y = messages as f64 * row.size as f64 * 8.0 / interval / 1e9;
        (y == 0.0 || is_drawn(y)).then_some(Point { x, y, more: interval })
    };
    let describe = |curve: &Curve, point: &Point| {
        let [start, end] = [point.x - point.more, point.x].map(|seconds| fixed(seconds, 8, 3));
        format!("{}\n{start} to {end} s: {} Gb/s", curve.name, fixed(point.y, 9, 3))
    };
    line(name, colour, intervals.iter().enumerate().filter_map(point).collect(), describe)
}

/// The latency of a size by percentile.
fn percentiles(name: &str, colour: usize, row: &Row) -> Option<Curve> {
    let latency = row.latency()?;
    let histogram = &latency.histogram;
    // The sum is that of the bins, because the number of samples in the file may differ from it.
    let samples = histogram.iter().fold(0.0, |sum, bin| sum + bin.1 as f64);
    let mut up_to = 0.0;
    let point = |&(end, count): &(f64, u64)| {
        up_to += count as f64;
        // The number of samples of which one is larger.
        let (x, y) = (samples / (samples - up_to + 1.0).max(1.0), end / 1000.0);
        (count > 0 && is_drawn(y)).then_some(Point { x, y, more: up_to / samples * 100.0 })
    };
    let mut points: Vec<_> = histogram.iter().filter_map(point).collect();
    let min = latency.min / 1000.0;
    if is_drawn(min) && !points.is_empty() {
        points.insert(0, Point { x: 1.0, y: min, more: 0.0 });
    }
    let describe = |curve: &Curve, point: &Point| match fixed(point.y, 9, 3) {
        y if point.more == 0.0 => format!("{}\nminimum: {y} us", curve.name),
        y => format!("{}\n{} % of the samples: at most {y} us", curve.name, fixed(point.more, 8, 5)),
    };
    line(name, colour, points, describe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Semantics;
    use crate::report::sample;
    use crate::stats::Figures;

    fn drawn(series: &[Series]) -> String {
        let mut html = Html::default();
        write(&mut html, series);
        html.into_text()
    }

    #[test]
    fn each_nine_is_a_step_of_the_percentile_axis() {
        let curve = percentiles("it", 0, &sample::latency_row(2, 1000)).unwrap();
        let (first, last) = (&curve.points[0], curve.points.last().unwrap());
        assert_eq!((first.x, first.y), (1.0, 1.0));
        assert_eq!((last.x, last.y), (1000.0, 1.999));
        let p90 = curve.points.iter().find(|point| point.x >= 10.0).unwrap();
        assert!((1.89..1.92).contains(&p90.y), "{}", p90.y);
        assert!(percentiles("it", 0, &sample::bandwidth_row(2, 10)).is_none());
    }

    #[test]
    fn intervals_become_rates_over_time() {
        let curve = over_time("it", 0, &sample::bandwidth_row(1000, 40_000)).unwrap();
        let points: Vec<_> = curve.points.iter().map(|point| (point.x, point.y)).collect();
        assert_eq!(points, [(0.25, 0.288), (0.5, 0.32), (0.75, 0.352), (1.0, 0.32)]);
        let mut long = sample::bandwidth_row(1000, 40_000);
        let Figures::Bandwidth(bandwidth) = &mut long.figures else { panic!("a bandwidth") };
        bandwidth.intervals = vec![10; 10 * INTERVALS];
        let curve = over_time("it", 0, &long).unwrap();
        assert!(curve.points.len() <= INTERVALS && curve.points.len() > INTERVALS / 4, "{}", curve.points.len());
    }

    #[test]
    fn each_size_has_a_chart_and_one_run_also_a_chart_of_several_sizes() {
        let series = |name: &str| {
            let rows = (0..20).map(|shift| sample::latency_row(1 << shift, 1000)).collect();
            Series::of_plan(name, &sample::plan(Measure::Latency(Semantics::Rtt)), rows)
        };
        let text = drawn(&[series("one")]);
        assert_eq!((text.matches("<section").count(), text.matches("several sizes").count()), (21, 3));
        let text = drawn(&[series("one"), series("two")]);
        assert_eq!((text.matches("<section").count(), text.matches("several sizes").count()), (20, 0));
        assert_eq!(text.matches("one p99").count(), text.matches("two p99").count());
        assert_eq!(spread(&[1, 2, 3, 4, 5], 3), [1, 3, 5]);
    }

    #[test]
    fn area_reaches_the_axis_where_an_interval_is_empty() {
        let mut rows = [64, 128, 256].map(|size| sample::bandwidth_row(size, 1000)).to_vec();
        let Figures::Bandwidth(bandwidth) = &mut rows[1].figures else { panic!("a bandwidth") };
        bandwidth.intervals[1] = 0;
        let curves = bandwidths("it", 0, &rows);
        assert_eq!(curves[0].band.iter().map(|[size, ..]| *size).collect::<Vec<_>>(), [64.0, 128.0, 256.0]);
        let text = drawn(&[Series::of_plan("it", &sample::plan(Measure::Bandwidth), rows)]);
        assert!(text.contains("class=\"band\"") && !text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn curve_of_averages_is_a_mean() {
        let mut row = sample::latency_row(2, 1000);
        assert_eq!(latencies("it", 0, std::slice::from_ref(&row))[0].name, "it median");
        let Figures::Latency(latency) = &mut row.figures else { panic!("a latency") };
        latency.p50 = f64::NAN;
        assert_eq!(latencies("it", 0, &[row])[0].name, "it mean");
    }

    #[test]
    fn values_that_cannot_be_drawn_are_left_out() {
        let mut rows = [64, 128, 256].map(|size| sample::bandwidth_row(size, 1000)).to_vec();
        rows[1] = sample::bandwidth_row(u64::MAX, u64::MAX / 100);
        let series = Series::of_plan("it", &sample::plan(Measure::Bandwidth), rows);
        let text = drawn(std::slice::from_ref(&series));
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        assert_eq!(text.matches("Mmsg/s</title>").count(), 2);
        assert_eq!(drawn(&[Series { rows: Vec::new(), ..series }]), "");
    }
}
