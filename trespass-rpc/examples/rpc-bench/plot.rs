//! Plots the rows as SVG: the rate and the latencies against the number of callers.

use std::fmt::Write;

/// One row of the result: the figures for one number of callers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) callers: usize,
    /// Calls per second.
    pub(crate) rate: f64,
    /// Latencies in microseconds.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

/// The class of a line, which is also its label, and its values.
type Line = (&'static str, fn(&Point) -> f64);

const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 300.0;
const MARGIN: f64 = 60.0;

/// The colours, for viewers with a light and a dark background. A label has the colour of its line.
const STYLE: &str = "<style>.back{fill:#fff}text{fill:#222}.grid{stroke:#ccc}.calls{color:#1268a8}.p50{color:#1c7c1c}\
    .p99{color:#c01f20}polyline{fill:none;stroke:currentColor;stroke-width:2}circle,.label{fill:currentColor}\
    @media(prefers-color-scheme:dark){.back{fill:#1c1c1c}text{fill:#ddd}.grid{stroke:#555}.calls{color:#6db7f2}\
    .p50{color:#6cd06c}.p99{color:#ff7d7d}.label{fill:currentColor}}</style>";

/// Returns the SVG document. All axes are logarithmic.
pub(crate) fn svg(title: &str, points: &[Point]) -> String {
    let mut points = points.to_vec();
    points.sort_by_key(|point| point.callers);
    let (width, height) = (2.0 * (WIDTH + 2.0 * MARGIN), HEIGHT + 2.0 * MARGIN);
    let mut out = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">"#
    );
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    out.push_str(STYLE);
    // Writing to a string cannot fail.
    _ = write!(out, r#"<rect class="back" width="100%" height="100%"/><text x="{MARGIN}" y="24">{title}</text>"#);
    panel(&mut out, MARGIN, "calls/s", &points, &[("calls", |point| point.rate)]);
    let lines: [Line; 2] = [("p99", |point| point.p99), ("p50", |point| point.p50)];
    panel(&mut out, WIDTH + 3.0 * MARGIN, "latency, us", &points, &lines);
    out.push_str("</svg>\n");
    out
}

/// Draws the lines; the first one has the largest values.
fn panel(out: &mut String, left: f64, title: &str, points: &[Point], lines: &[Line]) {
    let values = || points.iter().flat_map(|point| lines.iter().map(|(_, value)| value(point).max(0.1)));
    // The largest tick below all values, and the smallest above.
    let ticks: Vec<f64> = (-1..10).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(power))).collect();
    let low = ticks.iter().copied().filter(|&tick| values().all(|value| tick <= value)).fold(0.1, f64::max);
    let high = ticks.iter().copied().find(|&tick| tick > low && values().all(|value| value <= tick)).unwrap_or(5e9);
    let most = points.iter().map(|point| point.callers).max().unwrap_or(1).max(2) as f64;
    let x = |callers: usize| left + (callers.max(1) as f64).ln() / most.ln() * WIDTH;
    let y = |value: f64| MARGIN + (high / value.max(0.1)).ln() / (high / low).ln() * HEIGHT;
    let (bottom, right) = (MARGIN + HEIGHT, left + WIDTH);
    for &tick in ticks.iter().filter(|tick| (low..=high).contains(tick)) {
        let at = y(tick);
        let text = if tick >= 1e6 {
            format!("{}M", tick / 1e6)
        } else if tick >= 1e3 {
            format!("{}k", tick / 1e3)
        } else {
            format!("{}", (tick * 10.0).round() / 10.0)
        };
        _ = write!(out, r#"<path class="grid" d="M{left} {at:.1}h{WIDTH}"/>"#);
        _ = write!(out, r#"<text x="{:.1}" y="{:.1}" text-anchor="end">{text}</text>"#, left - 6.0, at + 4.0);
    }
    let mut free = f64::NEG_INFINITY;
    for point in points {
        let at = x(point.callers);
        _ = write!(out, r#"<path class="grid" d="M{at:.1} {bottom}v5"/>"#);
        // A label needs 28 units; those that would overlap are left out.
        if at >= free {
            free = at + 28.0;
            let (at_y, callers) = (bottom + 18.0, point.callers);
            _ = write!(out, r#"<text x="{at:.1}" y="{at_y:.1}" text-anchor="middle">{callers}</text>"#);
        }
    }
    _ = write!(out, r#"<text x="{left}" y="{:.1}">{title}</text>"#, MARGIN - 12.0);
    let middle = left + WIDTH / 2.0;
    _ = write!(out, r#"<text x="{middle:.1}" y="{:.1}" text-anchor="middle">callers</text>"#, bottom + 40.0);
    for (number, (name, value)) in lines.iter().enumerate() {
        let corners: Vec<_> = points.iter().map(|point| (x(point.callers), y(value(point)))).collect();
        let list: Vec<_> = corners.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        _ = write!(out, r#"<g class="{name}"><polyline points="{}"/>"#, list.join(" "));
        for (x, y) in &corners {
            _ = write!(out, r#"<circle cx="{x:.1}" cy="{y:.1}" r="3"/>"#);
        }
        // The labels stand to the right of the lines' ends: the first above its line, the second below.
        let end = corners.last().map_or(bottom, |(_, y)| if number == 0 { y - 2.0 } else { y + 10.0 });
        _ = write!(out, r#"<text class="label" x="{:.1}" y="{end:.1}">{name}</text></g>"#, right + 8.0);
    }
}
