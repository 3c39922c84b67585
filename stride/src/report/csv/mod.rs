//! CSV output, which consists of a header and one line per row.
//!
//! In each line, the environment follows the figures, so that the files of several tests can be concatenated.

mod environment;

use std::io::{Result, Write};

use self::environment::Columns;
use super::{Environment, Row};
use crate::endpoint::{Changes, Counted};
use crate::plan::{Measure, Plan};
use crate::stats::Latency;

/// Writes the CSV lines of one test.
#[derive(Debug)]
pub struct Csv {
    plan: Plan,
    environment: Columns,
}

impl Csv {
    /// Creates a writer for the rows of a test in this environment.
    pub fn new(environment: &Environment) -> Self {
        Self { plan: environment.plan.clone(), environment: Columns::new(environment) }
    }

    /// Writes the header.
    ///
    /// # Errors
    ///
    /// Returns any error of the writer `out`.
    pub fn head(&self, out: &mut dyn Write) -> Result<()> {
        let names = self.figures().names().iter().chain(&OF_ANY).copied();
        line(out, names.chain(self.environment.names()))
    }

    /// Writes the line of a row. If a value is unknown, its field is empty.
    ///
    /// # Errors
    ///
    /// Returns any error of the writer `out`.
    pub fn row(&self, out: &mut dyn Write, row: &Row) -> Result<()> {
        let figures = self.figures().values(row);
        let any = self.of_any(row);
        line(out, figures.iter().chain(&any).map(String::as_str).chain(self.environment.values()))
    }

    /// Returns the fields that bandwidth rows and latency rows have in common.
    fn of_any(&self, row: &Row) -> [String; 4] {
        let semantics = match self.plan.workload.measure {
            Measure::Bandwidth => String::new(),
            Measure::Latency(semantics) => semantics.to_string(),
        };
        let [client, server] = counters(row);
        [semantics, self.plan.moderation(row.size).to_string(), client, server]
    }

    fn figures(&self) -> Figures {
        Figures::of(self.plan.workload.measure)
    }
}

/// The columns with the figures of a kind of measurement, without an environment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures(Measure);

impl Figures {
    /// Selects the columns.
    pub(crate) fn of(measure: Measure) -> Self {
        Self(measure)
    }

    /// Returns the names of the columns.
    pub(crate) fn names(self) -> &'static [&'static str] {
        match self.0 {
            Measure::Bandwidth => &BANDWIDTH,
            Measure::Latency(_) => &LATENCY,
        }
    }

    /// Returns the fields of a row.
    pub(crate) fn values(self, row: &Row) -> Vec<String> {
        match self.0 {
            Measure::Bandwidth => bandwidth(row),
            Measure::Latency(_) => latency(row),
        }
    }
}

/// Writes a record as RFC 4180 defines it, except that it ends with a line feed alone.
pub(crate) fn line<'a>(out: &mut dyn Write, fields: impl Iterator<Item = &'a str>) -> Result<()> {
    let quoted = |field: &str| match field.contains([',', '"', '\r', '\n']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    };
    let fields: Vec<_> = fields.map(quoted).collect();
    writeln!(out, "{}", fields.join(","))?;
    out.flush()
}

const BANDWIDTH: [&str; 15] = [
    "size_bytes",
    "is_whole",
    "messages",
    "window_seconds",
    "average_gigabits_per_second",
    "slowest_interval_gigabits_per_second",
    "median_interval_gigabits_per_second",
    "fastest_interval_gigabits_per_second",
    "average_mebibytes_per_second",
    "average_messages_per_second",
    "cpu_share",
    "port_gigabits_per_second",
    "interval_seconds",
    "sent_messages",
    "arrived_messages",
];

fn bandwidth(row: &Row) -> Vec<String> {
    let figures = row.bandwidth();
    let average = row.average();
    let interval = |i: usize| text(row.jitter().map(|rates| rates[i].gigabits_per_second));
    vec![
        row.size.to_string(),
        row.is_whole.to_string(),
        text(figures.map(|figures| figures.messages)),
        text(figures.map(|figures| figures.seconds)),
        text(average.map(|rates| rates.gigabits_per_second)),
        interval(0),
        interval(1),
        interval(2),
        text(average.map(|rates| rates.mebibytes_per_second)),
        text(average.map(|rates| rates.messages_per_second)),
        text(figures.and_then(|figures| figures.cpu)),
        each(row.port_averages(), |rates| rates.gigabits_per_second.to_string()),
        text(figures.map(|figures| figures.interval)),
        text(figures.and_then(|figures| figures.sent)),
        text(figures.and_then(|figures| figures.arrived)),
    ]
}

const LATENCY: [&str; 12] = [
    "size_bytes",
    "is_whole",
    "samples",
    "min_nanoseconds",
    "p50_nanoseconds",
    "p90_nanoseconds",
    "p99_nanoseconds",
    "p99_9_nanoseconds",
    "p99_99_nanoseconds",
    "max_nanoseconds",
    "mean_nanoseconds",
    "stdev_nanoseconds",
];

fn latency(row: &Row) -> Vec<String> {
    let figures = row.latency();
    let of = |field: fn(&Latency) -> f64| text(figures.map(field).filter(|value| value.is_finite()));
    vec![
        row.size.to_string(),
        row.is_whole.to_string(),
        text(figures.map(|figures| figures.samples)),
        of(|figures| figures.min),
        of(|figures| figures.p50),
        of(|figures| figures.p90),
        of(|figures| figures.p99),
        of(|figures| figures.p99_9),
        of(|figures| figures.p99_99),
        of(|figures| figures.max),
        of(|figures| figures.mean),
        of(|figures| figures.stdev),
    ]
}

/// The columns for the semantics of a latency, for the number of messages per completion, and for counter changes.
const OF_ANY: [&str; 4] = ["semantics", "cq_moderation", "client_counters", "server_counters"];

/// Returns the counter changes as `name=change`, separated by spaces. A port that has no counters is written as
/// `name=none`.
fn counters(row: &Row) -> [String; 2] {
    let text = |changes: &Changes| {
        let value = |change: &Option<i64>| change.map_or_else(|| "none".to_owned(), |change| change.to_string());
        let each = changes.0.iter().map(|(name, change)| format!("{name}={}", value(change)));
        each.collect::<Vec<_>>().join(" ")
    };
    let of =
        |side: fn(&Counted) -> Option<&Changes>| row.counters.as_ref().and_then(side).map_or_else(String::new, text);
    [of(|counted| counted.client.as_ref()), of(|counted| counted.server.as_ref())]
}

/// Formats one value per port, separated by spaces.
fn each<T>(ports: impl IntoIterator<Item = T>, format: impl Fn(T) -> String) -> String {
    ports.into_iter().map(format).collect::<Vec<_>>().join(" ")
}

fn text(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::plan::Semantics;
    use crate::report::sample;

    fn read(measure: Measure, row: &Row) -> HashMap<String, String> {
        read_in(&sample::environment(measure), row)
    }

    fn read_in(environment: &Environment, row: &Row) -> HashMap<String, String> {
        let csv = Csv::new(environment);
        let text = sample::written(|out| {
            csv.head(out)?;
            csv.row(out, row)
        });
        let mut records = ::csv::Reader::from_reader(text.as_bytes()).into_deserialize();
        let record = records.next().unwrap().unwrap();
        assert!(records.next().is_none());
        record
    }

    #[test]
    fn port_without_counters_differs_from_unchanged_counters() {
        let changes = [("mlx5_0/1", None), ("mlx5_1/1/counters/symbol_error", Some(2))];
        let server = Some(Changes(changes.map(|(name, change)| (name.to_owned(), change)).into()));
        let row = Row { counters: Some(Counted { client: None, server }), ..sample::bandwidth_row(4096, 5) };
        let found = read(Measure::Bandwidth, &row);
        assert_eq!(found["server_counters"], "mlx5_0/1=none mlx5_1/1/counters/symbol_error=2");
    }

    #[test]
    fn bandwidths() {
        let row = Row { counters: Some(sample::counted()), ..sample::bandwidth_row(4096, 1_000_000) };
        let found = read(Measure::Bandwidth, &row);
        let expected = [
            ("size_bytes", "4096"),
            ("average_gigabits_per_second", "32.768"),
            ("messages", "1000000"),
            ("client_counters", "counters/symbol_error=0 hw_counters/out_of_buffer=-6"),
            ("server_counters", ""),
            ("interval_seconds", "0.25"),
            ("sent_messages", ""),
            ("semantics", ""),
            ("plan.operation", "write"),
            ("plan.measure", "bandwidth"),
            ("plan.amount.time.time_seconds", "1.0"),
            ("plan.amount.messages.count", ""),
            ("plan.server.memory.cuda", "0"),
            ("path.mtu_bytes", "4096"),
            ("client.host", "one"),
            ("server.host", "two"),
            ("client.cpus", "[2]"),
            ("client.memory", "host"),
            ("client.memory.cuda", ""),
            ("server.inline_bytes", "220"),
            ("time", "2026-07-01T12:00:00Z"),
            ("command_line", r#"["stride-perf","write","bw","server, one"]"#),
        ];
        for (name, value) in expected {
            assert_eq!(found.get(name).map(String::as_str), Some(value), "{name}");
        }
    }

    #[test]
    fn further_ports_are_json_lists() {
        let environment = sample::over_two_ports(sample::environment(Measure::Bandwidth));
        let found = read_in(&environment, &sample::ports_row(4096, 1_000_000));
        for (name, value) in [
            ("average_gigabits_per_second", "32.768"),
            ("port_gigabits_per_second", "8.192 24.576"),
            ("client.device", "mlx5_0"),
            ("server.numa_node", "0"),
            ("path.client_gid", "3"),
        ] {
            assert_eq!(found.get(name).map(String::as_str), Some(value), "{name}");
        }
        let others = |name: &str| serde_json::from_str::<serde_json::Value>(&found[name]).unwrap();
        assert_eq!(others("client.others")[0]["port"], 2);
        assert_eq!(others("server.others")[0]["device"], "mlx5_1");
        assert_eq!(others("path.others")[0]["client_gid"], 5);
        let one = read(Measure::Bandwidth, &sample::bandwidth_row(4096, 10));
        assert_eq!((&*one["client.others"], &*one["port_gigabits_per_second"]), ("", ""));
    }

    #[test]
    fn moderation_of_large_messages_is_in_its_line() {
        let mut environment = sample::environment(Measure::Bandwidth);
        (environment.plan.queues.cq_moderation, environment.plan.queues.is_each_large_signaled) = (100, true);
        let csv = Csv::new(&environment);
        let text = sample::written(|out| {
            csv.head(out)?;
            [8192, 8193].iter().try_for_each(|size| csv.row(out, &sample::bandwidth_row(*size, 10)))
        });
        let mut records = ::csv::Reader::from_reader(text.as_bytes());
        let records = records.deserialize::<HashMap<String, String>>().map(|record| record.unwrap());
        let found: Vec<_> =
            records.map(|record| ["cq_moderation", "plan.cq_moderation"].map(|name| record[name].clone())).collect();
        assert_eq!(found, [["100", "100"], ["1", "100"]]);
    }

    #[test]
    fn latencies() {
        let found = read(Measure::Latency(Semantics::Rtt), &sample::latency_row(8, 1500));
        let expected = [
            ("samples", "1000"),
            ("min_nanoseconds", "1500"),
            ("semantics", "rtt"),
            ("plan.measure", ""),
            ("plan.measure.latency", "rtt"),
        ];
        for (name, value) in expected {
            assert_eq!(found.get(name).map(String::as_str), Some(value), "{name}");
        }
    }

    #[test]
    fn unknown_values_are_empty_fields() {
        let mut row = sample::latency_row(8, 1500);
        if let crate::stats::Figures::Latency(latency) = &mut row.figures {
            latency.p90 = f64::NAN;
        }
        assert_eq!(read(Measure::Latency(Semantics::Rtt), &row)["p90_nanoseconds"], "");
    }
}
