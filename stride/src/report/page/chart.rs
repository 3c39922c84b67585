//! A chart of curves, as SVG within HTML. The style sheet of the page sets its colours.

use std::fmt::Write;
use std::ops::Range;

use super::html::Html;
use crate::report::axis::{DRAWN, distance, even, short, some, steps};
use crate::report::bytes;

/// A chart, whose curves have common axes.
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) curves: Vec<Curve>,
}

pub(super) struct Curve {
    pub(super) name: String,
    /// The number of the colour.
    pub(super) colour: usize,
    /// Whether this is a secondary curve, which is drawn thinner.
    pub(super) is_second: bool,
    pub(super) points: Vec<Point>,
    /// The area around the curve: the place on the x axis, and the smallest and largest value there.
    pub(super) band: Vec<[f64; 3]>,
    /// Returns the description of a point. Only points that are drawn are described.
    pub(super) describe: fn(&Self, &Point) -> String,
}

pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    /// What the description names besides the place.
    pub(super) more: f64,
}

/// Number of colours in the style sheet.
const COLOURS: usize = 7;

/// Returns the class of a colour. Each colour returns with another pattern of dashes.
pub(super) fn class(number: usize) -> String {
    match number / COLOURS {
        0 => format!("c{number}"),
        dashes => format!("c{} d{dashes}", number % COLOURS),
    }
}

/// Size of a chart, and of the margins for labels on its left, right, upper and lower side.
const SIZE: (f64, f64) = (720.0, 380.0);
const MARGINS: [f64; 4] = [66.0, 18.0, 10.0, 46.0];

pub(super) struct Axis {
    label: String,
    is_log: bool,
    range: Range<f64>,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// The axis of message sizes, with labels at some of these sizes.
    pub(super) fn sizes(sizes: Vec<f64>) -> Self {
        let range = extent(&sizes);
        let ticks = some(sizes).into_iter().map(|size| (size, bytes(size as u64))).collect();
        Self { label: "message size, bytes".to_owned(), is_log: true, range: range.start / 1.2..range.end * 1.2, ticks }
    }

    /// The axis of percentiles, on which each further nine has the same length. Values on this axis are the numbers of
    /// samples of which one is larger.
    pub(super) fn percentiles(most: f64) -> Self {
        let powers = (0..12).map(|nines| 10f64.powi(nines)).take_while(|value| *value <= most.max(10.0));
        let name = |value: f64| match value.log10().round() as usize {
            0 => "0 %".to_owned(),
            1 => "90 %".to_owned(),
            2 => "99 %".to_owned(),
            nines => format!("99.{} %", "9".repeat(nines - 2)),
        };
        let ticks = powers.map(|value| (value, name(value))).collect();
        Self { label: "percentile".to_owned(), is_log: true, range: 1.0..most.max(10.0), ticks }
    }

    /// An axis that starts at zero.
    pub(super) fn from_zero(label: &str, values: &[f64]) -> Self {
        let range = 0.0..values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let ticks = named(even(&(0.0..range.end * 1.0001)));
        Self { label: label.to_owned(), is_log: false, range, ticks }
    }

    /// An axis on which small values are as clear as large ones.
    pub(super) fn log(label: &str, values: &[f64]) -> Self {
        let range = extent(values);
        let range = range.start / 1.3..range.end * 1.3;
        let ticks = named(steps(&range));
        Self { label: label.to_owned(), is_log: true, range, ticks }
    }

    /// Returns where a value lies, as a fraction of the length of the axis.
    fn share(&self, value: f64) -> f64 {
        let of = |value: f64| if self.is_log { value.ln() } else { value };
        let (start, end) = (of(self.range.start), of(self.range.end));
        ((of(value) - start) / (end - start)).clamp(0.0, 1.0)
    }
}

/// Returns labels with their texts.
fn named(labels: Vec<f64>) -> Vec<(f64, String)> {
    let distance = distance(&labels);
    labels.into_iter().map(|label| (label, short(label, distance))).collect()
}

/// Returns the range that contains all values.
fn extent(values: &[f64]) -> Range<f64> {
    let (start, end) =
        values.iter().fold((f64::INFINITY, 0.0), |(a, b): (f64, f64), &value| (a.min(value), b.max(value)));
    if start <= end { start..end } else { 1.0..1.0 }
}

/// Whether a value can be drawn.
pub(super) fn is_drawn(value: f64) -> bool {
    DRAWN.contains(&value)
}

impl Chart {
    fn place(&self, x: f64, y: f64) -> (f64, f64) {
        let [left, right, top, bottom] = MARGINS;
        let (width, height) = (SIZE.0 - left - right, SIZE.1 - top - bottom);
        (left + self.x.share(x) * width, top + (1.0 - self.y.share(y)) * height)
    }

    /// Drops points that lie on the previous point of their curve.
    pub(super) fn thin(&mut self) {
        let mut curves = std::mem::take(&mut self.curves);
        for curve in &mut curves {
            let last = curve.points.len().saturating_sub(1);
            let mut before: Option<(f64, f64)> = None;
            let mut at = 0;
            curve.points.retain(|point| {
                let (x, y) = self.place(point.x, point.y);
                let is_kept = at == last || before.is_none_or(|(old, then)| (x - old).hypot(y - then) > 4.0);
                at += 1;
                before = if is_kept { Some((x, y)) } else { before };
                is_kept
            });
        }
        self.curves = curves;
    }

    /// Appends the chart with its title and legend.
    pub(super) fn draw(&self, html: &mut Html) {
        html.add("<figure class=\"chart\">\n<figcaption>{}</figcaption>\n<p class=\"legend\">", &[&self.title]);
        for curve in &self.curves {
            let second = if curve.is_second { " second" } else { "" };
            html.add("<span class=\"{}{}\">{}</span> ", &[&class(curve.colour), &second, &curve.name]);
        }
        let (width, height) = SIZE;
        html.add("</p>\n<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n", &[&width, &height, &self.title]);
        self.axes(html);
        self.curves.iter().for_each(|curve| self.curve(html, curve));
        html.raw("</svg>\n</figure>\n");
    }

    fn axes(&self, html: &mut Html) {
        let [left, right, top, bottom] = MARGINS;
        let (end, base) = (SIZE.0 - right, SIZE.1 - bottom);
        for (value, name) in &self.y.ticks {
            let y = one(self.place(self.x.range.start, *value).1);
            html.add("<path class=\"grid\" d=\"M{} {}H{}\"/>", &[&left, &y, &end]);
            html.add("<text class=\"end\" x=\"{}\" y=\"{}\" dy=\"4\">{}</text>\n", &[&(left - 8.0), &y, name]);
        }
        for (value, name) in &self.x.ticks {
            let x = one(self.place(*value, self.y.range.start).0);
            html.add("<path class=\"grid\" d=\"M{} {}V{}\"/>", &[&x, &top, &base]);
            html.add("<text class=\"middle\" x=\"{}\" y=\"{}\">{}</text>\n", &[&x, &(base + 17.0), name]);
        }
        html.add("<path class=\"axis\" d=\"M{} {}V{}H{}\"/>\n", &[&left, &top, &base, &end]);
        let (middle, centre) = ((left + end) / 2.0, (top + base) / 2.0);
        html.add("<text class=\"middle\" x=\"{}\" y=\"{}\">{}</text>\n", &[&middle, &(SIZE.1 - 8.0), &self.x.label]);
        let turned = "<text class=\"middle\" transform=\"translate(14 {})rotate(-90)\">{}</text>\n";
        html.add(turned, &[&centre, &self.y.label]);
    }

    fn curve(&self, html: &mut Html, curve: &Curve) {
        let second = if curve.is_second { " second" } else { "" };
        html.add("<g class=\"{}{}\">", &[&class(curve.colour), &second]);
        if curve.band.len() > 1 {
            let ahead = curve.band.iter().map(|&[x, low, _]| self.place(x, low));
            let back = curve.band.iter().rev().map(|&[x, _, high]| self.place(x, high));
            html.add("<path class=\"band\" d=\"M{}Z\"/>", &[&path(ahead.chain(back))]);
        }
        html.add("<path d=\"M{}\"/>\n", &[&path(curve.points.iter().map(|point| self.place(point.x, point.y)))]);
        for point in &curve.points {
            let (x, y) = self.place(point.x, point.y);
            html.add(
                "<circle cx=\"{}\" cy=\"{}\"><title>{}</title></circle>\n",
                &[&one(x), &one(y), &(curve.describe)(curve, point)],
            );
        }
        html.raw("</g>\n");
    }
}

/// Formats a coordinate.
fn one(value: f64) -> String {
    short(value, 0.1)
}

fn path(places: impl Iterator<Item = (f64, f64)>) -> String {
    places.enumerate().fold(String::new(), |mut text, (at, (x, y))| {
        // Writing to a string does not fail.
        let _ = write!(text, "{}{} {}", if at == 0 { "" } else { "L" }, one(x), one(y));
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_a_page_have_classes_of_their_own() {
        let classes: std::collections::BTreeSet<_> = (0..crate::report::page::RUNS).map(class).collect();
        assert_eq!(classes.len(), crate::report::page::RUNS);
        let style = include_str!("page.css");
        for part in classes.iter().flat_map(|class| class.split(' ')) {
            assert!(style.contains(&format!(".{part} ")), "{part}");
        }
    }
}
