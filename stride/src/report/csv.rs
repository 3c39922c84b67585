//! A line for each row, with a head: what spreadsheets and data frames read as it is.
//!
//! What the rows depend on stands in columns after the figures, so that files of several tests can be put one below the other.

use std::io::{Result, Write};

use super::{Environment, Row};
use crate::fabric::{Changes, Counted, Facts};
use crate::plan::{Amount, Measure, Memory, Plan};
use crate::stats::Latency;

/// Lines of one test.
#[derive(Debug)]
pub struct Csv {
    plan: Plan,
    environment: Vec<(&'static str, String)>,
}

impl Csv {
    /// Of a test in an environment.
    pub fn new(environment: &Environment) -> Self {
        Self { plan: environment.plan.clone(), environment: columns(environment) }
    }

    /// Writes the head.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn head(&self, out: &mut dyn Write) -> Result<()> {
        let names = self.names().iter().chain(&COUNTERS).chain(self.environment.iter().map(|(name, _)| name));
        line(out, names)
    }

    /// Writes the line of a row. What it does not know is empty.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn row(&self, out: &mut dyn Write, row: &Row) -> Result<()> {
        let figures = match self.plan.measure {
            Measure::Bandwidth => bandwidth(row),
            Measure::Latency(_) => latency(row),
        };
        let counters = counters(row);
        // What depends on the size.
        let moderation = self.plan.moderation(row.size).to_string();
        let values = self.environment.iter().map(|(name, value)| if *name == MODERATION { &moderation } else { value });
        line(out, figures.iter().chain(&counters).chain(values))
    }

    fn names(&self) -> &'static [&'static str] {
        match self.plan.measure {
            Measure::Bandwidth => &BANDWIDTH,
            Measure::Latency(_) => &LATENCY,
        }
    }
}

fn line<T: AsRef<[u8]>>(out: &mut dyn Write, fields: impl Iterator<Item = T>) -> Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(fields)?;
    writer.flush()
}

const BANDWIDTH: [&str; 12] = [
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

const MODERATION: &str = "cq_moderation";

const COUNTERS: [&str; 2] = ["client_counters", "server_counters"];

/// Each with its change, as `name=change`, with spaces between them.
fn counters(row: &Row) -> [String; 2] {
    let text = |changes: &Changes| {
        let each = changes.0.iter().map(|(name, change)| format!("{name}={change}"));
        each.collect::<Vec<_>>().join(" ")
    };
    let of =
        |side: fn(&Counted) -> Option<&Changes>| row.counters.as_ref().and_then(side).map_or_else(String::new, text);
    [of(|counted| counted.client.as_ref()), of(|counted| counted.server.as_ref())]
}

/// The columns after the figures.
fn columns(environment: &Environment) -> Vec<(&'static str, String)> {
    let plan = &environment.plan;
    let (measure, semantics) = match plan.measure {
        Measure::Bandwidth => ("bandwidth", String::new()),
        Measure::Latency(semantics) => ("latency", semantics.to_string()),
    };
    let (messages, seconds) = match plan.amount {
        Amount::Messages { count, .. } => (count.to_string(), String::new()),
        Amount::Time { .. } if plan.is_endless => (String::new(), String::new()),
        Amount::Time { time, .. } => (String::new(), time.as_secs_f64().to_string()),
    };
    let mut all = vec![
        ("operation", plan.operation.to_string()),
        ("measure", measure.to_owned()),
        ("semantics", semantics),
        ("transport", plan.transport.to_string()),
        ("asked_messages", messages),
        ("asked_seconds", seconds),
        ("queue_pairs", plan.queue_pairs.to_string()),
        ("threads", plan.threads.to_string()),
        ("tx_depth", plan.tx_depth.to_string()),
        ("rx_depth", plan.rx_depth.to_string()),
        ("post_list", plan.post_list.to_string()),
        ("receive_list", text(plan.receive_list)),
        (MODERATION, plan.cq_moderation.to_string()),
        ("bidirectional", plan.is_bidirectional.to_string()),
        ("reversed", plan.is_reversed.to_string()),
        ("inline_bytes", text(plan.inline)),
        ("mtu_bytes", each(environment.path.all(), |path| path.mtu.to_string())),
        ("relaxed_ordering", plan.is_relaxed.to_string()),
        ("on_demand_paging", plan.is_on_demand.to_string()),
        ("mr_per_qp", plan.has_own_regions.to_string()),
        ("events", plan.has_events.to_string()),
        ("rdma_cm", plan.by_address.to_string()),
        ("qp_timeout", plan.qp_timeout.to_string()),
        ("service_level", plan.service_level.to_string()),
        ("traffic_class", plan.traffic_class.to_string()),
        ("flow_label", plan.flow_label.to_string()),
        ("validated", plan.is_validated.to_string()),
        ("rate_limit_gigabits_per_second", text(plan.rate_limit)),
        ("burst_size", text(plan.burst_size)),
        ("gap_seconds", text(plan.gap.map(|gap| gap.as_secs_f64()))),
        ("client_gid_index", each(environment.path.all(), |path| text(path.client_gid))),
        ("server_gid_index", each(environment.path.all(), |path| text(path.server_gid))),
    ];
    let (client, server) = (&environment.client, &environment.server);
    for (names, facts) in
        [(["client_pkey_index", "client_dlid"], client), (["server_pkey_index", "server_dlid"], server)]
    {
        let values = [text(facts.partition.map(|partition| partition.index)), text(facts.dlid)];
        all.extend(names.into_iter().zip(values));
    }
    all.extend(CLIENT.into_iter().zip(side(&environment.client)));
    all.extend(SERVER.into_iter().zip(side(&environment.server)));
    all.push(("time", environment.time.clone()));
    all.push(("version", environment.version.clone()));
    all.push(("command_line", environment.command_line.join(" ")));
    all
}

const CLIENT: [&str; 13] = [
    "client_host",
    "client_kernel",
    "client_device",
    "client_port",
    "client_provider",
    "client_firmware",
    "client_memory",
    "client_gpu",
    "client_registration",
    "client_numa_node",
    "client_cpus",
    "client_bound_to_node",
    "client_inline_bytes",
];

const SERVER: [&str; 13] = [
    "server_host",
    "server_kernel",
    "server_device",
    "server_port",
    "server_provider",
    "server_firmware",
    "server_memory",
    "server_gpu",
    "server_registration",
    "server_numa_node",
    "server_cpus",
    "server_bound_to_node",
    "server_inline_bytes",
];

/// What there is to say of each port, with spaces between them.
fn each<T>(ports: impl IntoIterator<Item = T>, say: impl Fn(T) -> String) -> String {
    ports.into_iter().map(say).collect::<Vec<_>>().join(" ")
}

fn side(facts: &Facts) -> [String; 13] {
    let memory = match &facts.memory {
        Memory::Host => "host".to_owned(),
        Memory::HugePages => "huge_pages".to_owned(),
        Memory::Cuda(gpu) => format!("cuda:{gpu}"),
    };
    let (gpu, registration) = (text(facts.gpu.as_ref()), text(facts.registration));
    let [host, kernel, provider, firmware] =
        [&facts.host, &facts.kernel, &facts.provider, &facts.firmware].map(String::clone);
    let device = each(facts.all(), |port| port.device.clone());
    let port = each(facts.all(), |port| port.port.to_string());
    let node = each(facts.all(), |port| text(port.numa_node));
    let cpus: Vec<_> = facts.all().flat_map(|port| &port.cpus).map(u32::to_string).collect();
    let inline = text(facts.inline);
    let is_bound = facts.is_bound.to_string();
    let cpus = cpus.join(" ");
    [host, kernel, device, port, provider, firmware, memory, gpu, registration, node, cpus, is_bound, inline]
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
    fn bandwidths() {
        let row = Row { counters: Some(sample::counted()), ..sample::bandwidth_row(4096, 1_000_000) };
        let found = read(Measure::Bandwidth, &row);
        let expected = [
            ("size_bytes", "4096"),
            ("average_gigabits_per_second", "32.768"),
            ("messages", "1000000"),
            ("client_counters", "counters/symbol_error=0 hw_counters/out_of_buffer=-6"),
            ("server_counters", ""),
            ("operation", "write"),
            ("semantics", ""),
            ("asked_seconds", "1"),
            ("mtu_bytes", "4096"),
            ("client_host", "one"),
            ("server_host", "two"),
            ("client_cpus", "2"),
            ("server_inline_bytes", "220"),
            ("time", "2026-07-01T12:00:00Z"),
            ("command_line", "stride-perf write bw server, one"),
        ];
        for (name, value) in expected {
            assert_eq!(found.get(name).map(String::as_str), Some(value), "{name}");
        }
    }

    #[test]
    fn what_differs_by_port_has_spaces_between() {
        let environment = sample::over_two_ports(sample::environment(Measure::Bandwidth));
        let found = read_in(&environment, &sample::ports_row(4096, 1_000_000));
        for (name, value) in [
            ("average_gigabits_per_second", "32.768"),
            ("port_gigabits_per_second", "8.192 24.576"),
            ("client_device", "mlx5_0 mlx5_0"),
            ("client_port", "1 2"),
            ("server_device", "mlx5_0 mlx5_1"),
            ("server_numa_node", "0 1"),
            ("client_gid_index", "3 5"),
            ("mtu_bytes", "4096 4096"),
        ] {
            assert_eq!(found.get(name).map(String::as_str), Some(value), "{name}");
        }
        let one = read(Measure::Bandwidth, &sample::bandwidth_row(4096, 10));
        assert_eq!((&*one["client_port"], &*one["port_gigabits_per_second"]), ("1", ""));
    }

    #[test]
    fn a_completion_of_each_large_message_is_in_its_line() {
        let mut environment = sample::environment(Measure::Bandwidth);
        (environment.plan.cq_moderation, environment.plan.is_each_large_signaled) = (100, true);
        let csv = Csv::new(&environment);
        let text = sample::written(|out| {
            csv.head(out)?;
            [8192, 8193].iter().try_for_each(|size| csv.row(out, &sample::bandwidth_row(*size, 10)))
        });
        let mut records = ::csv::Reader::from_reader(text.as_bytes());
        let records = records.deserialize::<HashMap<String, String>>().map(|record| record.unwrap());
        let found: Vec<_> = records.map(|record| record["cq_moderation"].clone()).collect();
        assert_eq!(found, ["100", "1"]);
    }

    #[test]
    fn latencies() {
        let found = read(Measure::Latency(Semantics::Rtt), &sample::latency_row(8, 1500));
        let expected = [("samples", "1000"), ("min_nanoseconds", "1500"), ("semantics", "rtt"), ("measure", "latency")];
        for (name, value) in expected {
            assert_eq!(found.get(name).map(String::as_str), Some(value), "{name}");
        }
    }

    #[test]
    fn what_is_not_known_is_empty() {
        let mut row = sample::latency_row(8, 1500);
        if let crate::stats::Figures::Latency(latency) = &mut row.figures {
            latency.p90 = f64::NAN;
        }
        assert_eq!(read(Measure::Latency(Semantics::Rtt), &row)["p90_nanoseconds"], "");
    }
}
