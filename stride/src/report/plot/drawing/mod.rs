//! Draws the panels (feature `plot`).

mod canvas;
mod panel;

use anyhow::{Result, anyhow, ensure};
use plotters::coord::Shift;
use plotters::prelude::*;

use self::canvas::Canvas;
use self::panel::{Panel, panels};
use super::Format;
use crate::report::Series;

/// Size of a panel in pixels.
const PANEL: (u32, u32) = (1000, 560);

/// Whether any row has a value to plot.
pub fn has_points(series: &[Series]) -> bool {
    !panels(series).is_empty()
}

/// Plots the series. Bandwidths share one panel, and each kind of latency has another.
///
/// # Errors
///
/// Returns an error for the user if there is nothing to plot.
pub fn draw(series: &[Series], format: Format) -> Result<Vec<u8>> {
    let panels = panels(series);
    ensure!(!panels.is_empty(), "no rows to plot; name results of a completed test");
    let size = (PANEL.0, PANEL.1 * u32::try_from(panels.len())?);
    match format {
        Format::Svg => {
            let mut text = String::new();
            on(&SVGBackend::with_string(&mut text, size).into_drawing_area(), &panels)?;
            Ok(text.into_bytes())
        }
        Format::Png => {
            let mut pixels = vec![0; size.0 as usize * size.1 as usize * 3];
            on(&Canvas::new(&mut pixels, size).into_drawing_area(), &panels)?;
            encode(&pixels, size)
        }
    }
}

fn encode(pixels: &[u8], (width, height): (u32, u32)) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header()?.write_image_data(pixels)?;
    Ok(out)
}

fn on<B: DrawingBackend>(area: &DrawingArea<B, Shift>, panels: &[Panel]) -> Result<()> {
    let failed = |error: DrawingAreaErrorKind<B::ErrorType>| anyhow!("cannot draw the plot: {error}");
    area.fill(&WHITE).map_err(failed)?;
    for (part, panel) in area.split_evenly((panels.len(), 1)).iter().zip(panels) {
        panel.draw(part).map_err(failed)?;
    }
    area.present().map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::plan::{Measure, Semantics};
    use crate::report::{Row, sample};
    use crate::stats::{Bandwidth, Figures};

    fn bandwidth(name: &str, scale: u64) -> Series {
        let rows =
            (1..24).map(|shift| sample::bandwidth_row(1 << shift, scale * (20_000_000 >> (shift / 2)))).collect();
        Series::of_plan(name, &sample::plan(Measure::Bandwidth), rows)
    }

    fn latency(name: &str, semantics: Semantics) -> Series {
        let rows = (1..24).map(|shift| sample::latency_row(1 << shift, 1000 + (1 << shift) / 40)).collect();
        Series { operation: None, ..Series::of_plan(name, &sample::plan(Measure::Latency(semantics)), rows) }
    }

    fn svg(series: &[Series]) -> String {
        String::from_utf8(draw(series, Format::Svg).unwrap()).unwrap()
    }

    /// Returns the pixels of a PNG, with three bytes each, and its size.
    fn decoded(bytes: &[u8]) -> (Vec<u8>, u32, u32) {
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        (pixels, info.width, info.height)
    }

    #[test]
    fn plot_has_axes_units_and_names() {
        let text = svg(&[bandwidth("old <1>", 1), bandwidth("new", 2), latency("old", Semantics::Ack)]);
        for part in [
            "Bandwidth",
            "Gb/s",
            "message size, bytes",
            "128 KiB",
            "old &lt;1&gt;",
            "Latency (ack)",
            "latency, us",
            "old p99",
        ] {
            assert!(text.contains(part), "{part}");
        }
        assert!(text.contains("#0072B2") && text.contains("#D55E00"), "a colour for each");
    }

    #[test]
    fn plot_names_operation_and_transport() {
        let one = bandwidth("one", 1);
        assert!(svg(&[one.clone(), bandwidth("two", 2)]).contains("Bandwidth of write, RC"));
        let other = Series {
            operation: Some(crate::plan::Operation::Read),
            is_bidirectional: Some(true),
            ..bandwidth("two", 2)
        };
        let text = svg(&[one, other]);
        assert!(text.contains("one (write, RC)") && text.contains("two (read, RC, bidirectional)"), "{text}");
        assert!(!text.contains("Bandwidth of"), "{text}");
    }

    #[test]
    fn bandwidth_axis_is_logarithmic() {
        let mut series = bandwidth("one", 1);
        series.rows = [1, 1000, 1_000_000].map(|messages| sample::bandwidth_row(1 << 20, messages)).to_vec();
        let text = svg(&[series]);
        assert!(
            ["0.01", "0.1", "1", "10", "100", "1000"].iter().all(|label| text.contains(&format!("\n{label}\n"))),
            "{text}"
        );
    }

    #[test]
    fn kinds_of_latency_have_separate_panels() {
        let text =
            svg(&[latency("one", Semantics::Ack), latency("two", Semantics::Oneway), latency("three", Semantics::Ack)]);
        assert_eq!(text.matches("Latency (").count(), 2);
        assert!(text.contains("height=\"1120\""));
    }

    #[test]
    fn png_has_text_without_system_fonts() {
        let bytes = draw(&[bandwidth("one", 1)], Format::Png).unwrap();
        let (pixels, width, height) = decoded(&bytes);
        assert_eq!((width, height), PANEL);
        let dark = |from: (u32, u32), to: (u32, u32)| {
            let all = (from.1..to.1).flat_map(|y| (from.0..to.0).map(move |x| (x, y)));
            all.filter(|(x, y)| pixels[(y * width + x) as usize * 3] < 128).count()
        };
        assert!(dark((300, 0), (700, 40)) > 100, "the caption");
        assert!(dark((100, height - 40), (width, height)) > 100, "the label of the size axis");
        assert!(dark((0, 50), (36, height - 50)) > 100, "the label of the value axis, written upwards");
    }

    #[test]
    fn single_size_can_be_plotted() {
        let mut series = bandwidth("one", 1);
        series.rows.truncate(1);
        for format in [Format::Svg, Format::Png] {
            assert!(!draw(&[series.clone()], format).unwrap().is_empty());
        }
    }

    #[test]
    fn axis_labels_cover_the_measured_range() {
        let mut series = latency("one", Semantics::Ack);
        series.rows.truncate(1);
        series.rows[0].size = 3000;
        let text = svg(&[series]);
        assert!(text.contains("\n3000\n") && text.contains("\n1.6\n"), "{text}");
    }

    #[test]
    fn empty_series_cannot_be_plotted() {
        let mut series = bandwidth("one", 0);
        assert!(draw(&[series.clone()], Format::Svg).is_err(), "nothing was sent");
        series.rows.clear();
        assert_eq!(
            draw(&[series], Format::Png).unwrap_err().to_string(),
            "no rows to plot; name results of a completed test"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..Default::default() })]

        #[test]
        fn arbitrary_values_can_be_plotted(rows in prop::collection::vec((any::<u64>(), any::<u64>(), any::<f64>()), 1..5)) {
            let of = |&(size, messages, seconds): &(u64, u64, f64)| {
                let bandwidth = Bandwidth { messages, seconds, ..Bandwidth::default() };
                Row::new(size, Figures::Bandwidth(bandwidth))
            };
            let mut one = bandwidth("any", 1);
            one.rows = rows.iter().map(of).collect();
            let mut other = latency("any", Semantics::Rtt);
            for (row, (size, _, value)) in other.rows.iter_mut().zip(&rows) {
                let Figures::Latency(latency) = &mut row.figures else { unreachable!("a latency") };
                (row.size, latency.p50, latency.p99) = (*size, *value, 1.0);
            }
            prop_assert!(draw(&[one, other], Format::Svg).is_ok());
        }
    }

    #[test]
    fn format_follows_the_file_extension() {
        assert_eq!(Format::of(Path::new("a/b.SVG")).unwrap(), Format::Svg);
        assert_eq!(Format::of(Path::new("b.png")).unwrap(), Format::Png);
        assert!(Format::of(Path::new("svg")).is_err());
    }
}
