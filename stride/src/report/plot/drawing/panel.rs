//! A panel of a plot, which contains curves with common axes.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::combinators::BindKeyPoints;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;

use crate::plan::Measure;
use crate::report::axis::{DRAWN, distance, short, some, steps};
use crate::report::row::middle_of;
use crate::report::{Row, Series, bytes};

/// A panel, which contains curves with common axes.
pub(super) struct Panel {
    measure: Measure,
    /// The operations and transports of the curves, each of them once. Empty if they are unknown.
    kinds: Vec<String>,
    curves: Vec<Curve>,
}

struct Curve {
    name: String,
    /// The operation and transport of this curve.
    kind: String,
    /// The index of the series, which determines the colour.
    series: usize,
    /// Whether this is a secondary curve, which is drawn thinner.
    is_second: bool,
    /// The points: message size in bytes, and either Gb/s or microseconds.
    points: Vec<(f64, f64)>,
}

pub(super) fn panels(series: &[Series]) -> Vec<Panel> {
    let mut panels: Vec<Panel> = Vec::new();
    for (number, one) in series.iter().enumerate() {
        let found = curves(number, one);
        match panels.iter_mut().find(|panel| panel.measure == one.measure) {
            _ if found.is_empty() => {}
            Some(panel) => {
                panel.curves.extend(found);
                panel.kinds.push(one.kind());
            }
            None => panels.push(Panel { measure: one.measure, kinds: vec![one.kind()], curves: found }),
        }
    }
    for panel in &mut panels {
        panel.kinds.sort();
        panel.kinds.dedup();
        if panel.kinds.len() > 1 {
            // If the curves differ in operation or transport, the name of each curve also contains these.
            panel.curves.iter_mut().for_each(Curve::add_kind_to_name);
        }
    }
    panels
}

impl Curve {
    /// Appends the operation and transport to the name of the curve.
    fn add_kind_to_name(&mut self) {
        if !self.kind.is_empty() {
            self.name = format!("{} ({})", self.name, self.kind);
        }
    }
}

fn curves(number: usize, series: &Series) -> Vec<Curve> {
    let of = |suffix: &str, is_second: bool, value: fn(&Row) -> Option<f64>| {
        let rows = series.rows.iter().filter(|row| row.size > 0);
        let mut points: Vec<_> = rows.filter_map(|row| Some((row.size as f64, value(row)?))).collect();
        points.retain(|point| DRAWN.contains(&point.1));
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Curve { name: format!("{}{suffix}", series.name), kind: series.kind(), series: number, is_second, points }
    };
    let mut curves = match series.measure {
        Measure::Bandwidth => vec![of("", false, |row| row.average().map(|rates| rates.gigabits_per_second))],
        Measure::Latency(_) => vec![
            of(&format!(" {}", middle_of(&series.rows)), false, |row| {
                row.latency().map(|latency| latency.middle() / 1000.0)
            }),
            of(" p99", true, |row| row.latency().map(|latency| latency.p99 / 1000.0)),
        ],
    };
    curves.retain(|curve| !curve.points.is_empty());
    curves
}

/// Colours that most readers can distinguish, even in grey (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

impl Panel {
    pub(super) fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let (sizes, values) = (self.range(|point| point.0), self.range(|point| point.1));
        let sizes = (sizes.start / 1.2..sizes.end * 1.2).log_scale().base(2.0).with_key_points(self.sizes());
        let mut builder = ChartBuilder::on(area);
        builder.margin(16).x_label_area_size(52).y_label_area_size(80);
        match self.measure {
            Measure::Bandwidth => builder.caption(format!("Bandwidth{}", self.of()), ("sans-serif", 24)),
            Measure::Latency(semantics) => {
                builder.caption(format!("Latency ({semantics}){}", self.of()), ("sans-serif", 24))
            }
        };
        let label = if self.measure == Measure::Bandwidth { "average, Gb/s" } else { "latency, us" };
        // The axis is logarithmic, so that small values are as clear as large ones.
        let values = values.start / 1.3..values.end * 1.3;
        let steps = steps(&values);
        let distance = distance(&steps);
        let mut chart = builder.build_cartesian_2d(sizes, values.log_scale().with_key_points(steps))?;
        self.fill(&mut chart, label, distance)
    }

    /// Returns the operation and transport, if they are the same for all curves.
    fn of(&self) -> String {
        match self.kinds.as_slice() {
            [kind] if !kind.is_empty() => format!(" of {kind}"),
            _ => String::new(),
        }
    }

    /// Returns the range that contains all points.
    fn range(&self, of: fn(&(f64, f64)) -> f64) -> Range<f64> {
        let values = || self.curves.iter().flat_map(|curve| curve.points.iter().map(of));
        values().fold(f64::INFINITY, f64::min)..values().fold(0.0, f64::max)
    }

    /// Returns the labels for message sizes, which are the sizes of all points or of some of them.
    fn sizes(&self) -> Vec<f64> {
        some(self.curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.0)).collect())
    }

    fn fill<'a, B, X, Y>(
        &self,
        chart: &mut ChartContext<'a, B, Cartesian2d<X, Y>>,
        label: &str,
        distance: f64,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>>
    where
        B: DrawingBackend + 'a,
        X: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        chart
            .configure_mesh()
            .label_style(("sans-serif", 16))
            .axis_desc_style(("sans-serif", 18))
            .x_desc("message size, bytes")
            .y_desc(label)
            .x_label_formatter(&|size| bytes(size.round() as u64))
            .y_label_formatter(&|value| short(*value, distance))
            .light_line_style(WHITE)
            .draw()?;
        for curve in &self.curves {
            let colour = COLOURS[curve.series % COLOURS.len()];
            let style =
                colour.mix(if curve.is_second { 0.5 } else { 1.0 }).stroke_width(2 - u32::from(curve.is_second));
            chart
                .draw_series(LineSeries::new(curve.points.iter().copied(), style))?
                .label(&curve.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
            let radius = if curve.is_second { 2 } else { 3 };
            chart.draw_series(curve.points.iter().map(|&point| Circle::new(point, radius, style.filled())))?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .label_font(("sans-serif", 16))
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .draw()
    }
}
