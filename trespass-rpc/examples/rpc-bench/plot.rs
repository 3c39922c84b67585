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

type Line = (&'static str, &'static str, fn(&Point) -> f64);

const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 300.0;
const MARGIN: f64 = 60.0;

/// Returns the SVG document. Both axes are logarithmic.
pub(crate) fn svg(title: &str, points: &[Point]) -> String {
    let mut points = points.to_vec();
    points.sort_by_key(|point| point.callers);
    let (width, height) = (2.0 * (WIDTH + 2.0 * MARGIN), HEIGHT + 2.0 * MARGIN);
    let mut out = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">"#
    );
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    // Writing to a string cannot fail.
    _ = write!(out, r#"<rect width="100%" height="100%" fill="white"/><text x="{MARGIN}" y="24">{title}</text>"#);
    panel(&mut out, MARGIN, "calls/s", &points, &[("calls/s", "#1f77b4", |point| point.rate)]);
    let lines: [Line; 2] = [("p50", "#2ca02c", |point| point.p50), ("p99", "#d62728", |point| point.p99)];
    panel(&mut out, WIDTH + 3.0 * MARGIN, "latency, us", &points, &lines);
    out.push_str("</svg>\n");
    out
}

fn panel(out: &mut String, left: f64, label: &str, points: &[Point], lines: &[Line]) {
    let values = || points.iter().flat_map(|point| lines.iter().map(|(_, _, value)| value(point).max(0.1)));
    let low = values().fold(f64::INFINITY, f64::min).log10().floor();
    let high = values().fold(0.1, f64::max).log10().ceil().max(low + 1.0);
    let most = points.iter().map(|point| point.callers).max().unwrap_or(1).max(2) as f64;
    let x = |callers: usize| left + (callers.max(1) as f64).ln() / most.ln() * WIDTH;
    let y = |value: f64| MARGIN + (high - value.max(0.1).log10()) / (high - low) * HEIGHT;
    let bottom = MARGIN + HEIGHT;
    _ = write!(
        out,
        r##"<g stroke="#ccc" fill="none"><rect x="{left}" y="{MARGIN}" width="{WIDTH}" height="{HEIGHT}"/>"##
    );
    for power in low as i32..=high as i32 {
        let at = y(10_f64.powi(power));
        _ = write!(out, r#"<path d="M{left} {at:.1}h{WIDTH}"/>"#);
    }
    out.push_str("</g>");
    for power in low as i32..=high as i32 {
        let (value, at) = (10_f64.powi(power), y(10_f64.powi(power)) + 4.0);
        _ = write!(out, r#"<text x="{:.1}" y="{at:.1}" text-anchor="end">{value}</text>"#, left - 6.0);
    }
    for point in points {
        let at = x(point.callers);
        _ = write!(out, r#"<text x="{at:.1}" y="{:.1}" text-anchor="middle">{}</text>"#, bottom + 18.0, point.callers);
    }
    _ = write!(out, r#"<text x="{left}" y="{:.1}">{label}</text>"#, MARGIN - 8.0);
    _ = write!(
        out,
        r#"<text x="{:.1}" y="{:.1}" text-anchor="middle">callers</text>"#,
        left + WIDTH / 2.0,
        bottom + 40.0
    );
    for (at, (name, color, value)) in lines.iter().enumerate() {
        let corners: Vec<_> =
            points.iter().map(|point| format!("{:.1},{:.1}", x(point.callers), y(value(point)))).collect();
        let corners = corners.join(" ");
        _ = write!(out, r#"<polyline fill="none" stroke="{color}" stroke-width="2" points="{corners}"/>"#);
        let at = MARGIN + 18.0 + 16.0 * at as f64;
        _ = write!(out, r#"<text x="{:.1}" y="{at:.1}" fill="{color}">{name}</text>"#, left + 8.0);
    }
}
