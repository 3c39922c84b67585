//! The table of results, which is printed row by row.

use std::io::{Result, Write};

use super::units::count;
use super::{Row, Style, bytes, fixed};
use crate::endpoint::{Changes, Counted};
use crate::plan::{Measure, Semantics};
use crate::stats::{Bandwidth, Figures, Interval, Latency, Seen};

/// Which optional columns a bandwidth table has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// Whether the table shows the slowest and the median interval in addition to the fastest.
    pub intervals: bool,
    /// Whether the table shows the processor time.
    pub cpu: bool,
}

/// The table of results, all of whose lines have the same width.
#[derive(Debug)]
pub struct Table {
    title: String,
    columns: Vec<Column>,
    /// The names of the ports, if there are several.
    ports: Vec<String>,
    style: Style,
}

impl Table {
    /// Creates a table for this kind of measurement.
    pub fn new(measure: Measure, columns: Columns, style: Style) -> Self {
        match measure {
            Measure::Bandwidth => Self { title: String::new(), columns: bandwidth(columns), ports: Vec::new(), style },
            Measure::Latency(semantics) => {
                let title = format!("latency {semantics}: {}", meaning(semantics));
                Self { title, columns: latency(), ports: Vec::new(), style }
            }
        }
    }

    /// Returns the name and the unit of each column.
    pub(super) fn heads(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.columns.iter().map(|column| (column.name, column.unit))
    }

    /// Returns the text of each column for a row.
    pub(super) fn cells(&self, row: &Row) -> impl Iterator<Item = String> {
        self.columns.iter().map(|column| column.text(row))
    }

    /// Sets the names of the ports, in the order in which each row lists its ports.
    pub fn name_ports(&mut self, names: Vec<String>) {
        self.ports = names;
    }

    /// Writes the header.
    ///
    /// # Errors
    ///
    /// Returns any error of the writer `out`.
    pub fn head(&self, out: &mut dyn Write) -> Result<()> {
        let head = self.style.head;
        if !self.title.is_empty() {
            writeln!(out, "{}", self.title)?;
        }
        for text in [|column: &Column| column.name, |column: &Column| column.unit] {
            writeln!(out, "{head}{}{head:#}", self.line(|column| text(column).to_owned()))?;
        }
        out.flush()
    }

    /// Writes the line of a row. If a value is unknown, a dash stands for it. A row that was cut short is marked. If
    /// there are figures of ports or counters, their lines follow.
    ///
    /// # Errors
    ///
    /// Returns any error of the writer `out`.
    pub fn row(&self, out: &mut dyn Write, row: &Row) -> Result<()> {
        let mark = if row.is_whole { "" } else { "  cut short" };
        writeln!(out, "{}{mark}", self.line(|column| column.text(row)))?;
        let dim = self.style.dim;
        for (name, rates) in self.ports.iter().zip(row.port_averages()) {
            let (gigabits, rate) = (rates.gigabits_per_second, rates.messages_per_second / 1e6);
            writeln!(out, "{dim}    {name}: {gigabits:.3} Gb/s, {rate:.6} Mmsg/s{dim:#}")?;
        }
        if let Some(Counted { client, server }) = &row.counters {
            for (side, changes) in [("client", client), ("server", server)] {
                let text = changes.as_ref().map_or_else(|| "no counters".to_owned(), Changes::to_string);
                writeln!(out, "{dim}    {side}: {text}{dim:#}")?;
            }
        }
        out.flush()
    }

    /// Writes the line of an interval, with the same columns as a row.
    ///
    /// # Errors
    ///
    /// Returns any error of the writer `out`.
    pub fn interval(&self, out: &mut dyn Write, size: u64, interval: &Interval) -> Result<()> {
        let unknown = f64::NAN;
        let figures = match interval.seen {
            Seen::Bandwidth { messages } => Figures::Bandwidth(Bandwidth {
                messages,
                seconds: interval.end - interval.start,
                ..Bandwidth::default()
            }),
            Seen::Latency { samples, min, mean, max } => Figures::Latency(Latency {
                samples,
                min,
                mean,
                stdev: unknown,
                p50: unknown,
                p90: unknown,
                p99: unknown,
                p99_9: unknown,
                p99_99: unknown,
                max,
                histogram: Vec::new(),
            }),
        };
        self.row(out, &Row::new(size, figures))
    }

    /// Writes the line of a size that has no results.
    ///
    /// # Errors
    ///
    /// Returns any error of the writer `out`.
    pub fn blank(&self, out: &mut dyn Write, size: u64) -> Result<()> {
        let text = |column: &Column| match column.value {
            Value::Size => column.size(size),
            Value::Count(_) | Value::Number(..) => "-".to_owned(),
        };
        writeln!(out, "{}  nothing was measured", self.line(text))?;
        out.flush()
    }

    fn line(&self, text: impl Fn(&Column) -> String) -> String {
        let cells = self.columns.iter().map(|column| format!("{:>width$}", text(column), width = column.width));
        cells.collect::<Vec<_>>().join(GAP)
    }
}

/// The space between two columns.
const GAP: &str = "  ";

/// Returns an explanation of the semantics.
fn meaning(semantics: Semantics) -> &'static str {
    match semantics {
        Semantics::Oneway => "half of the round trip",
        Semantics::Ack => "from post to completion",
        Semantics::Rtt => "round trip",
    }
}

#[derive(Debug)]
struct Column {
    name: &'static str,
    unit: &'static str,
    width: usize,
    value: Value,
}

/// What a column contains.
#[derive(Debug)]
enum Value {
    Size,
    Count(fn(&Row) -> Option<u64>),
    Number(usize, fn(&Row) -> Option<f64>),
}

impl Column {
    fn text(&self, row: &Row) -> String {
        let text = match self.value {
            Value::Size => Some(self.size(row.size)),
            Value::Count(of) => of(row).map(|value| count(value, self.width)),
            Value::Number(decimals, of) => of(row).map(|value| fixed(value, self.width, decimals)),
        };
        text.unwrap_or_else(|| "-".to_owned())
    }

    fn size(&self, size: u64) -> String {
        let short = bytes(size);
        if short.len() <= self.width { short } else { count(size, self.width) }
    }
}

const SIZE: Column = Column { name: "Size", unit: "bytes", width: 10, value: Value::Size };

fn bandwidth(columns: Columns) -> Vec<Column> {
    fn gigabits(name: &'static str, of: fn(&Row) -> Option<f64>) -> Column {
        Column { name, unit: "Gb/s", width: 9, value: Value::Number(3, of) }
    }
    let messages = |row: &Row| row.bandwidth().map(|bandwidth| bandwidth.messages);
    let mut all = vec![
        SIZE,
        Column { name: "Messages", unit: "", width: 12, value: Value::Count(messages) },
        gigabits("Average", |row| row.average().map(|average| average.gigabits_per_second)),
    ];
    if columns.intervals {
        all.push(gigabits("Slowest", |row| row.jitter().map(|[slowest, ..]| slowest.gigabits_per_second)));
        all.push(gigabits("Median", |row| row.jitter().map(|[_, median, _]| median.gigabits_per_second)));
    }
    all.push(gigabits("Fastest", |row| row.jitter().map(|[.., fastest]| fastest.gigabits_per_second)));
    let number = |name, unit, width, decimals, of| Column { name, unit, width, value: Value::Number(decimals, of) };
    let mebibytes = |row: &Row| row.average().map(|average| average.mebibytes_per_second);
    all.push(number("Average", "MiB/s", 10, 2, mebibytes));
    let rate = |row: &Row| row.average().map(|average| average.messages_per_second / 1e6);
    all.push(number("Rate", "Mmsg/s", 10, 6, rate));
    if columns.cpu {
        let cpu = |row: &Row| row.bandwidth()?.cpu.map(|share| share * 100.0);
        all.push(number("CPU", "%", 7, 1, cpu));
    }
    all
}

fn latency() -> Vec<Column> {
    fn time(name: &'static str, of: fn(&Row) -> Option<f64>) -> Column {
        Column { name, unit: "us", width: 8, value: Value::Number(3, of) }
    }
    fn of(row: &Row, field: fn(&Latency) -> f64) -> Option<f64> {
        row.latency().map(|latency| field(latency) / 1000.0)
    }
    let samples = |row: &Row| row.latency().map(|latency| latency.samples);
    vec![
        SIZE,
        Column { name: "Samples", unit: "", width: 10, value: Value::Count(samples) },
        time("min", |row| of(row, |latency| latency.min)),
        time("p50", |row| of(row, |latency| latency.p50)),
        time("p90", |row| of(row, |latency| latency.p90)),
        time("p99", |row| of(row, |latency| latency.p99)),
        time("p99.9", |row| of(row, |latency| latency.p99_9)),
        time("p99.99", |row| of(row, |latency| latency.p99_99)),
        time("max", |row| of(row, |latency| latency.max)),
        time("mean", |row| of(row, |latency| latency.mean)),
        time("stdev", |row| of(row, |latency| latency.stdev)),
    ]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::report::sample;

    fn lines(table: &Table, rows: &[Row]) -> Vec<String> {
        let text = sample::written(|out| {
            table.head(out)?;
            rows.iter().try_for_each(|row| table.row(out, row))
        });
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn bandwidth() {
        let columns = Columns { intervals: true, cpu: true };
        let table = Table::new(Measure::Bandwidth, columns, Style::plain());
        let rows = [sample::bandwidth_row(64, 5_000_000), sample::bandwidth_row(1 << 20, 40_000)];
        let expected = [
            "      Size      Messages    Average    Slowest     Median    Fastest     Average        Rate      CPU",
            "     bytes                     Gb/s       Gb/s       Gb/s       Gb/s       MiB/s      Mmsg/s        %",
            "        64       5000000      2.560      2.304      2.560      2.816      305.18    5.000000    100.0",
            "     1 MiB         40000    335.544    301.990    335.544    369.099    40000.00    0.040000    100.0",
        ];
        assert_eq!(lines(&table, &rows), expected);
    }

    #[test]
    fn bandwidth_without_intervals_has_a_dash() {
        let table = Table::new(Measure::Bandwidth, Columns::default(), Style::plain());
        let bandwidth = Bandwidth { messages: 10, seconds: 1.0, ..Bandwidth::default() };
        let row = Row::new(1_000_000, Figures::Bandwidth(bandwidth));
        let expected = [
            "      Size      Messages    Average    Fastest     Average        Rate",
            "     bytes                     Gb/s       Gb/s       MiB/s      Mmsg/s",
            "   1000000            10      0.080          -        9.54    0.000010",
        ];
        assert_eq!(lines(&table, &[row]), expected);
    }

    #[test]
    fn latency() {
        let table = Table::new(Measure::Latency(Semantics::Oneway), Columns::default(), Style::plain());
        let expected = [
            "latency oneway: half of the round trip",
            "      Size     Samples       min       p50       p90       p99     p99.9    p99.99       max      mean     stdev",
            "     bytes                    us        us        us        us        us        us        us        us        us",
            "         2        1000     1.500     2.249     2.849     2.983     2.997     2.998     2.998     2.249     0.433",
        ];
        assert_eq!(lines(&table, &[sample::latency_row(2, 1500)]), expected);
    }

    #[test]
    fn row_cut_short_is_marked() {
        let table = Table::new(Measure::Bandwidth, Columns::default(), Style::plain());
        let row = Row { is_whole: false, ..sample::bandwidth_row(64, 5) };
        assert!(lines(&table, &[row])[2].ends_with("  cut short"));
    }

    #[test]
    fn interval_line_has_known_values_only() {
        let line = |measure, seen| {
            let table = Table::new(measure, Columns { intervals: true, cpu: true }, Style::plain());
            let interval = Interval { start: 3.0, end: 4.0, seen };
            sample::written(|out| table.interval(out, 64, &interval))
        };
        assert_eq!(
            line(Measure::Bandwidth, Seen::Bandwidth { messages: 5_000_000 }),
            "        64       5000000      2.560          -          -          -      305.18    5.000000        -\n"
        );
        let seen = Seen::Latency { samples: 7, min: 900.0, mean: 1234.5, max: 1e6 };
        assert_eq!(
            line(Measure::Latency(Semantics::Rtt), seen),
            "        64           7     0.900         -         -         -         -         -  1000.000     1.234         -\n"
        );
    }

    #[test]
    fn size_without_results_has_dashes() {
        let table = Table::new(Measure::Latency(Semantics::Oneway), Columns::default(), Style::plain());
        let line = sample::written(|out| table.blank(out, 8 << 20));
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!(words, ["8", "MiB", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "nothing", "was", "measured"]);
    }

    #[test]
    fn counters_follow_their_row() {
        let table = Table::new(Measure::Bandwidth, Columns::default(), Style::plain());
        let row = Row { counters: Some(sample::counted()), ..sample::bandwidth_row(64, 5) };
        let expected =
            ["    client: counters/symbol_error +0, hw_counters/out_of_buffer -6", "    server: no counters"];
        assert_eq!(lines(&table, &[row])[3..], expected);
    }

    #[test]
    fn ports_follow_their_row() {
        let mut table = Table::new(Measure::Bandwidth, Columns::default(), Style::plain());
        table.name_ports(["mlx5_0 port 1", "mlx5_1 port 1"].map(str::to_owned).to_vec());
        let row = Row { counters: Some(sample::counted()), ..sample::ports_row(4096, 1_000_000) };
        let expected =
            ["    mlx5_0 port 1: 8.192 Gb/s, 0.250000 Mmsg/s", "    mlx5_1 port 1: 24.576 Gb/s, 0.750000 Mmsg/s"];
        let lines = lines(&table, &[row, sample::bandwidth_row(64, 5)]);
        assert_eq!((&lines[3..5], lines.len()), (&expected.map(str::to_owned)[..], 8));
    }

    #[test]
    fn colours_appear_only_if_enabled() {
        let table = Table::new(Measure::Bandwidth, Columns::default(), Style::coloured());
        let [names, .., row] = &lines(&table, &[sample::bandwidth_row(64, 5)])[..] else { unreachable!("three lines") };
        assert!(names.contains('\u{1b}'));
        assert!(!row.contains('\u{1b}'));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn lines_have_equal_width(size in 0u64..1 << 36, messages: u64, seconds in 0.0f64..1e6, base in 1u64..1 << 40) {
            let table = Table::new(Measure::Bandwidth, Columns { intervals: true, cpu: true }, Style::plain());
            let bandwidth = Bandwidth { messages, seconds, cpu: Some(seconds), ..Bandwidth::default() };
            let all = lines(&table, &[Row::new(size, Figures::Bandwidth(bandwidth))]);
            prop_assert!(all.iter().all(|line| line.len() == all[0].len()), "{:#?}", all);
            let table = Table::new(Measure::Latency(Semantics::Rtt), Columns::default(), Style::plain());
            let all = lines(&table, &[sample::latency_row(size, base)]);
            prop_assert!(all[1..].iter().all(|line| line.len() == all[1].len()), "{:#?}", all);
        }
    }
}
