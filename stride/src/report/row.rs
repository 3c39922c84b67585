//! The results of each size.

use serde::{Deserialize, Serialize};

use crate::endpoint::Counted;
use crate::plan::{Measure, Operation, Plan, Transport};
use crate::stats::{Bandwidth, Figures, Latency, Rates};

/// The results of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "Record", from = "Record")]
pub struct Row {
    /// Message size in bytes.
    pub size: u64,
    /// The figures.
    pub figures: Figures,
    /// The counter changes, if the user requested them.
    pub counters: Option<Counted>,
    /// Whether the measurement of this size ran to its planned end.
    pub is_whole: bool,
}

impl Row {
    /// Creates a complete row.
    pub fn new(size: u64, figures: Figures) -> Self {
        Self { size, figures, counters: None, is_whole: true }
    }

    /// Returns the figures of a bandwidth, or `None` if this is a latency.
    pub fn bandwidth(&self) -> Option<&Bandwidth> {
        match &self.figures {
            Figures::Bandwidth(bandwidth) => Some(bandwidth),
            Figures::Latency(_) => None,
        }
    }

    /// Returns the figures of a latency, or `None` if this is a bandwidth.
    pub fn latency(&self) -> Option<&Latency> {
        match &self.figures {
            Figures::Bandwidth(_) => None,
            Figures::Latency(latency) => Some(latency),
        }
    }

    /// Returns the average rates, if this is a bandwidth.
    pub fn average(&self) -> Option<Rates> {
        self.bandwidth().map(|bandwidth| bandwidth.average(self.size))
    }

    /// Returns the average rates of each port, if this is a bandwidth over several ports.
    pub fn port_averages(&self) -> Vec<Rates> {
        let ports = self.bandwidth().map_or(&[][..], |bandwidth| &bandwidth.ports);
        ports.iter().map(|port| port.average(self.size)).collect()
    }

    /// Returns the rates of the slowest, the median and the fastest interval, if this is a bandwidth with several
    /// intervals.
    pub fn jitter(&self) -> Option<[Rates; 3]> {
        self.bandwidth()?.jitter(self.size)
    }
}

/// The rows of one test of this program or of perftest, with a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The name of the series.
    pub name: String,
    /// The operation, or `None` if it is unknown.
    pub operation: Option<Operation>,
    /// Whether the source does not state if immediate data was used.
    pub hides_immediates: bool,
    /// The kind of measurement.
    pub measure: Measure,
    /// The transport, or `None` if it is unknown.
    pub transport: Option<Transport>,
    /// Whether both sides sent, or `None` if this is unknown.
    pub is_bidirectional: Option<bool>,
    /// The rows.
    pub rows: Vec<Row>,
}

impl Series {
    /// Creates a series from the rows of a plan.
    pub fn of_plan(name: &str, plan: &Plan, rows: Vec<Row>) -> Self {
        Self {
            name: name.to_owned(),
            operation: Some(plan.workload.operation),
            hides_immediates: false,
            measure: plan.workload.measure,
            transport: Some(plan.attributes.transport),
            is_bidirectional: Some(plan.workload.direction.is_both()),
            rows,
        }
    }

    /// Returns the operation and transport, as far as they are known.
    pub(super) fn kind(&self) -> String {
        let operation = self.operation.map(|operation| operation.to_string());
        let transport = self.transport.map(|transport| transport.to_string());
        let both = self.is_bidirectional.filter(|both| *both).map(|_| "bidirectional".to_owned());
        operation.into_iter().chain(transport).chain(both).collect::<Vec<_>>().join(", ")
    }
}

/// A row in the form for JSON, which also contains derived values.
#[derive(Serialize, Deserialize)]
struct Record {
    size_bytes: u64,
    is_whole: bool,
    #[serde(flatten)]
    figures: Figures,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    counters: Option<Counted>,
    #[serde(skip_serializing_if = "Option::is_none", skip_deserializing)]
    average: Option<Rates>,
    #[serde(skip_serializing_if = "Option::is_none", skip_deserializing)]
    intervals: Option<Intervals>,
    #[serde(skip_serializing_if = "Vec::is_empty", skip_deserializing)]
    port_averages: Vec<Rates>,
}

/// The rates of the slowest, the median and the fastest interval.
#[derive(Serialize)]
struct Intervals {
    slowest: Rates,
    median: Rates,
    fastest: Rates,
}

impl From<Row> for Record {
    fn from(row: Row) -> Self {
        let average = row.average();
        let intervals = row.jitter().map(|[slowest, median, fastest]| Intervals { slowest, median, fastest });
        let port_averages = row.port_averages();
        let Row { size, figures, counters, is_whole } = row;
        Self { size_bytes: size, is_whole, figures, counters, average, intervals, port_averages }
    }
}

impl From<Record> for Row {
    fn from(record: Record) -> Self {
        Self { size: record.size_bytes, figures: record.figures, counters: record.counters, is_whole: record.is_whole }
    }
}

/// Returns the name of the value in the middle of the latencies, which is the mean if no row has a median.
pub(super) fn middle_of(rows: &[Row]) -> &'static str {
    let has_median = rows.iter().filter_map(Row::latency).any(|latency| latency.p50.is_finite());
    if has_median { "median" } else { "mean" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn rows_round_trip() {
        let mut counted = sample::latency_row(8, 1000);
        counted.counters = Some(sample::counted());
        let rows = [
            sample::bandwidth_row(4096, 1_000_000),
            sample::ports_row(4096, 1_000_000),
            sample::latency_row(8, 1000),
            counted,
        ];
        for row in rows {
            let text = serde_json::to_string(&row).unwrap();
            assert_eq!(serde_json::from_str::<Row>(&text).unwrap(), row, "{text}");
        }
    }

    #[test]
    fn json_rows_have_derived_members() {
        let value = serde_json::to_value(sample::bandwidth_row(4096, 1_000_000)).unwrap();
        assert_eq!(value["size_bytes"], 4096);
        assert_eq!(value["kind"], "bandwidth");
        assert_eq!(value["average"]["gigabits_per_second"], 32.768);
        assert!(value["intervals"]["slowest"]["messages_per_second"].is_f64());
        assert_eq!((value.get("ports"), value.get("port_averages")), (None, None), "there is one");
        let value = serde_json::to_value(sample::ports_row(4096, 1_000_000)).unwrap();
        assert_eq!(value["ports"][1]["messages"], 750_000);
        assert_eq!(value["port_averages"][0]["gigabits_per_second"], 8.192);
        let value = serde_json::to_value(sample::latency_row(8, 1000)).unwrap();
        assert!(value["p99_nanoseconds"].is_f64());
        assert_eq!(value.get("average"), None);
    }
}
