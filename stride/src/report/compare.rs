//! Compares the results of a run with those of a baseline.

use std::io::{Result, Write};

use anyhow::bail;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Environment, Row, Series, Style, bytes, bytes_in_words, fixed};
use crate::plan::{Measure, Plan};

/// A comparison of two tests, size by size.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    measure: Measure,
    /// The threshold in percent. A change up to this size counts as no change.
    threshold: f64,
    changes: Vec<Change>,
    /// The sizes that only the baseline has.
    gone: Vec<u64>,
    /// The sizes that only the new test has.
    added: Vec<u64>,
    /// The sizes of the baseline for which the new test has no result.
    blank: Vec<u64>,
}

/// A size that both tests measured, with its results.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Message size in bytes.
    pub size: u64,
    /// The values that are compared, first the old one and then the new one. Each value is the average in Gb/s, or the
    /// median in nanoseconds.
    pub values: [f64; 2],
    /// The 99th percentile of a latency in nanoseconds, first the old one and then the new one, if both are finite.
    /// This percentile is shown but not compared, because it varies between runs.
    pub p99: Option<[f64; 2]>,
}

/// The result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// No size is worse than in the baseline by more than the threshold.
    Held,
    /// At least one size is worse by more than the threshold, or has no result.
    Worse,
    /// The tests have no size in common.
    Nothing,
}

impl Comparison {
    /// Compares a new test with an old one. Rows that were cut short are treated as missing.
    ///
    /// # Errors
    ///
    /// Returns an error for the user if the two tests measured different operations or different kinds of results.
    pub fn of(old: &Series, new: &Series, threshold: f64) -> anyhow::Result<Self> {
        if old.measure != new.measure {
            bail!(
                "{} has {}, and {} has {}; give results of one kind",
                old.name,
                called(old.measure),
                new.name,
                called(new.measure)
            );
        }
        if let (Some(before), Some(now)) = (old.operation, new.operation)
            && before != now
            && !((old.hides_immediates || new.hides_immediates)
                && before.without_immediate() == now.without_immediate())
        {
            bail!("{} is {before}, and {} is {now}; give results of one operation", old.name, new.name);
        }
        if let (Some(before), Some(now)) = (old.transport, new.transport)
            && before != now
        {
            bail!("{} is over {before}, and {} is over {now}; give both the same --transport", old.name, new.name);
        }
        if let (Some(before), Some(now)) = (old.is_bidirectional, new.is_bidirectional)
            && before != now
        {
            let ways = |is_bidirectional| if is_bidirectional { "bidirectional" } else { "unidirectional" };
            bail!(
                "{} is {}, and {} is {}; give --bidirectional for both or neither",
                old.name,
                ways(before),
                new.name,
                ways(now)
            );
        }
        let find = |rows: &[Row], size| rows.iter().find(|row| row.size == size && row.is_whole).cloned();
        let lacks = |rows: &[Row], of: &[Row]| {
            of.iter()
                .filter(|row| row.is_whole)
                .map(|row| row.size)
                .filter(|&size| find(rows, size).is_none())
                .collect::<Vec<_>>()
        };
        let whole = new.rows.iter().filter(|row| row.is_whole);
        let changes = whole.filter_map(|row| Change::of(&find(&old.rows, row.size)?, row)).collect();
        Ok(Self {
            measure: new.measure,
            threshold,
            changes,
            gone: lacks(&new.rows, &old.rows),
            added: lacks(&old.rows, &new.rows),
            blank: Vec::new(),
        })
    }

    /// Counts sizes of the baseline as worse if they were completed in the new test but have no row.
    pub fn with_unmeasured(mut self, sizes: &[u64]) -> Self {
        self.blank = self.gone.iter().copied().filter(|size| sizes.contains(size)).collect();
        self
    }

    /// Returns the sizes that both tests have, in the order of the new test.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Returns the result of the comparison.
    pub fn outcome(&self) -> Outcome {
        if self.changes.is_empty() && self.blank.is_empty() {
            return Outcome::Nothing;
        }
        let is_blank = !self.blank.is_empty();
        if is_blank || self.changes.iter().any(|change| self.is_worse(change)) { Outcome::Worse } else { Outcome::Held }
    }

    /// Returns by how many percent a size has improved, which means a higher bandwidth or a lower latency.
    pub fn gain(&self, change: &Change) -> f64 {
        match self.measure {
            Measure::Bandwidth => percent(change.values),
            Measure::Latency(_) => -percent(change.values),
        }
    }

    /// Whether a size is worse by more than the threshold.
    pub fn is_worse(&self, change: &Change) -> bool {
        self.gain(change) < -self.threshold
    }

    /// Returns the threshold in percent. A change up to this size counts as no change.
    pub fn threshold(&self) -> f64 {
        self.threshold
    }

    /// Returns the sizes that only the baseline has.
    pub fn gone(&self) -> &[u64] {
        &self.gone
    }

    /// Returns the sizes that only the new test has.
    pub fn added(&self) -> &[u64] {
        &self.added
    }

    /// Writes one line per size, and then the sizes that only one test has.
    ///
    /// # Errors
    ///
    /// Returns any error of the writer.
    pub fn write(&self, out: &mut dyn Write, style: Style) -> Result<()> {
        let (unit, scale) = match self.measure {
            Measure::Bandwidth => ("Gb/s", 1.0),
            Measure::Latency(_) => ("p50 us", 1e-3),
        };
        let (head, dim) = (style.head, style.dim);
        let p99 = if self.measure == Measure::Bandwidth { "" } else { "    change of p99" };
        writeln!(
            out,
            "{head}{:>10}  {:>11}  {:>11}  {:>8}{p99}{head:#}",
            "Size",
            format!("old {unit}"),
            unit,
            "change"
        )?;
        for change in &self.changes {
            let [old, new] = change.values.map(|value| fixed(value * scale, 11, 3));
            let gain = self.gain(change);
            let (colour, word) = match gain {
                _ if self.is_worse(change) => (style.bad, "  worse"),
                _ if gain > self.threshold => (style.good, "  better"),
                _ => (style.dim, ""),
            };
            let p99 = change.p99.map_or_else(String::new, |values| format!("  {:>15}", signed(percent(values))));
            let percent = signed(percent(change.values));
            writeln!(
                out,
                "{:>10}  {old:>11}  {new:>11}  {colour}{percent:>8}{colour:#}{p99}{colour}{word}{colour:#}",
                bytes(change.size)
            )?;
        }
        let left_out: Vec<_> = self.gone.iter().copied().filter(|size| !self.blank.contains(size)).collect();
        for (sizes, text, colour) in [
            (&self.blank, "worse: nothing was measured, and the baseline has a result", style.bad),
            (&left_out, "not measured in this run", dim),
            (&self.added, "not in the baseline", dim),
        ] {
            if !sizes.is_empty() {
                let sizes: Vec<_> = sizes.iter().map(|&size| bytes_in_words(size)).collect();
                writeln!(out, "{colour}{text}: {}{colour:#}", sizes.join(", "))?;
            }
        }
        out.flush()
    }
}

impl Change {
    fn of(old: &Row, new: &Row) -> Option<Self> {
        let size = new.size;
        if let (Some(old), Some(new)) = (old.latency(), new.latency()) {
            let finite = |values: [f64; 2]| values.iter().all(|value| value.is_finite()).then_some(values);
            let medians = finite([old.p50, new.p50]).or_else(|| finite([old.mean, new.mean]))?;
            return Some(Self { size, values: medians, p99: finite([old.p99, new.p99]) });
        }
        let values = [old.average()?.gigabits_per_second, new.average()?.gigabits_per_second];
        Some(Self { size, values, p99: None })
    }
}

/// Lists how two tests differ in their settings, devices and machines. Sizes, versions and addresses are not compared.
pub fn differences(old: &Environment, new: &Environment) -> Vec<String> {
    let mut all = settings(&old.plan, &new.plan);
    let [old, new] = [old, new].map(|environment| serde_json::to_value(environment).unwrap_or_default());
    let parts = [("path", "the path's "), ("client", "the client's "), ("server", "the server's ")];
    for (part, owner) in parts {
        all.extend(differing(&old[part], &new[part], owner));
        let others = |side: &Value| side[part]["others"].as_array().cloned().unwrap_or_default();
        for (at, (before, now)) in others(&old).iter().zip(&others(&new)).enumerate() {
            all.extend(differing(before, now, &format!("port {} of the test, {owner}", at + 2)));
        }
    }
    all
}

/// Lists the differences in settings, by option.
fn settings(old: &Plan, new: &Plan) -> Vec<String> {
    let mut all = Vec::new();
    if old.title() != new.title() {
        all.push(format!("test: {} in the baseline, {} in this run", old.title(), new.title()));
    }
    if old.ports() != new.ports() {
        all.push(format!("ports of each side: {} in the baseline, {} in this run", old.ports(), new.ports()));
    }
    let pairs = old.settings().into_iter().zip(new.settings());
    let differing = pairs.filter(|(then, now)| {
        let is_idle = now.options.iter().any(|option| ["--msg-size", "--imm"].contains(&option.as_str()));
        !is_idle && then.value != now.value
    });
    all.extend(differing.map(|(then, now)| {
        let name = match now.options[0].as_str() {
            "--iters" => "messages or time per size",
            option => option,
        };
        format!("{name}: {} in the baseline, {} in this run", then.value, now.value)
    }));
    all
}

/// The members of an object that are ignored, because they do not affect performance.
pub(super) const IDLE: [&str; 9] =
    ["machine", "version", "gids", "lid", "port", "client_gid", "server_gid", "partition", "others"];

fn differing(old: &Value, new: &Value, owner: &str) -> Vec<String> {
    let members = new.as_object().into_iter().flatten().filter(|(name, _)| !IDLE.contains(&name.as_str()));
    members
        .map(|(name, value)| (name, &old[name.as_str()], value))
        .filter(|(_, before, now)| before != now)
        .map(|(name, before, now)| {
            format!("{owner}{}: {} in the baseline, {} in this run", name.replace('_', " "), words(before), words(now))
        })
        .collect()
}

/// Formats a value for a sentence.
pub(super) fn words(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::Bool(is) => if *is { "yes" } else { "no" }.to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) if text.is_empty() => "none".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(values) if values.is_empty() => "none".to_owned(),
        Value::Array(values) => values.iter().map(words).collect::<Vec<_>>().join(", "),
        Value::Object(values) => {
            let members = values.iter().map(|(name, value)| format!("{} {}", name.replace('_', " "), words(value)));
            members.collect::<Vec<_>>().join(", ")
        }
    }
}

/// Returns the change in percent of the old value.
fn percent([old, new]: [f64; 2]) -> f64 {
    if old == new { 0.0 } else { (new - old) / old * 100.0 }
}

fn signed(percent: f64) -> String {
    if !percent.is_finite() {
        return "-".to_owned();
    }
    format!("{percent:+.1} %")
}

fn called(measure: Measure) -> String {
    match measure {
        Measure::Bandwidth => "bandwidths".to_owned(),
        Measure::Latency(semantics) => format!("latencies of kind {semantics}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Operation, Semantics, Transport};
    use crate::report::sample;

    fn bandwidths(name: &str, rows: &[(u64, u64)]) -> Series {
        let rows = rows.iter().map(|&(size, messages)| sample::bandwidth_row(size, messages)).collect();
        Series::of_plan(name, &sample::plan(Measure::Bandwidth), rows)
    }

    fn latencies(semantics: Semantics, rows: &[(u64, u64)]) -> Series {
        let rows = rows.iter().map(|&(size, time)| sample::latency_row(size, time)).collect();
        Series { operation: None, ..Series::of_plan("it", &sample::plan(Measure::Latency(semantics)), rows) }
    }

    fn written(comparison: &Comparison) -> Vec<String> {
        let text = sample::written(|out| comparison.write(out, Style::plain()));
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn row_cut_short_counts_as_missing() {
        let whole = bandwidths("it", &[(64, 1_000_000), (128, 1_000_000)]);
        let mut cut = whole.clone();
        cut.rows[1].is_whole = false;
        let new_is_cut = Comparison::of(&whole, &cut, 5.0).unwrap();
        assert_eq!((new_is_cut.changes.len(), new_is_cut.gone.as_slice()), (1, &[128][..]));
        let old_is_cut = Comparison::of(&cut, &whole, 5.0).unwrap();
        assert_eq!((old_is_cut.changes.len(), old_is_cut.added.as_slice()), (1, &[128][..]));
    }

    #[test]
    fn lower_bandwidth_is_worse() {
        let old = bandwidths("old", &[(2, 10), (64, 1_000_000), (128, 1_000_000), (4096, 1_000_000)]);
        let new = bandwidths("new", &[(64, 940_000), (128, 1_030_000), (4096, 1_100_000), (8192, 10)]);
        let comparison = Comparison::of(&old, &new, 5.0).unwrap();
        assert_eq!(comparison.outcome(), Outcome::Worse);
        let expected = [
            "      Size     old Gb/s         Gb/s    change",
            "        64        0.512        0.481    -6.0 %  worse",
            "       128        1.024        1.055    +3.0 %",
            "     4 KiB       32.768       36.045   +10.0 %  better",
            "not measured in this run: 2 B",
            "not in the baseline: 8 KiB",
        ];
        assert_eq!(written(&comparison), expected);
        assert_eq!(Comparison::of(&old, &new, 6.5).unwrap().outcome(), Outcome::Held);
    }

    #[test]
    fn higher_latency_is_worse() {
        let (old, new) = (latencies(Semantics::Ack, &[(8, 1000)]), latencies(Semantics::Ack, &[(8, 1100)]));
        let comparison = Comparison::of(&old, &new, 5.0).unwrap();
        assert_eq!(comparison.outcome(), Outcome::Worse);
        assert_eq!(Comparison::of(&new, &old, 5.0).unwrap().outcome(), Outcome::Held);
        let lines = written(&comparison);
        assert_eq!(lines[0], "      Size   old p50 us       p50 us    change    change of p99");
        assert!(lines[1].ends_with("+9.9 %          +10.0 %  worse"), "{}", lines[1]);
    }

    #[test]
    fn different_measurements_are_not_compared() {
        let of = |old: &Series, new: &Series| Comparison::of(old, new, 5.0).unwrap_err().to_string();
        let ack = latencies(Semantics::Ack, &[]);
        let oneway = latencies(Semantics::Oneway, &[]);
        assert_eq!(
            of(&ack, &oneway),
            "it has latencies of kind ack, and it has latencies of kind oneway; give results of one kind"
        );
        assert_eq!(
            of(&bandwidths("old", &[]), &ack),
            "old has bandwidths, and it has latencies of kind ack; give results of one kind"
        );
        let mut read = bandwidths("new", &[]);
        read.operation = Some(Operation::Read);
        assert_eq!(of(&bandwidths("old", &[]), &read), "old is write, and new is read; give results of one operation");
    }

    #[test]
    fn different_transports_and_directions_are_not_compared() {
        let old = bandwidths("old", &[]);
        let of = |old: &Series, change: fn(&mut Series)| {
            let mut new = bandwidths("new", &[]);
            change(&mut new);
            Comparison::of(old, &new, 5.0).map(drop).map_err(|error| error.to_string())
        };
        let error = of(&old, |new| new.transport = Some(Transport::Uc)).unwrap_err();
        assert_eq!(error, "old is over RC, and new is over UC; give both the same --transport");
        let error = of(&old, |new| new.is_bidirectional = Some(true)).unwrap_err();
        assert_eq!(error, "old is unidirectional, and new is bidirectional; give --bidirectional for both or neither");
        assert_eq!(of(&old, |new| (new.transport, new.is_bidirectional) = (None, None)), Ok(()));
        // perftest's output has the same title for writes with and without immediate data.
        let immediate = |new: &mut Series| new.operation = Some(Operation::WriteWithImmediate);
        assert!(of(&old, immediate).is_err());
        let old = Series { hides_immediates: true, ..old };
        assert_eq!(of(&old, immediate), Ok(()));
        assert!(of(&old, |new| new.operation = Some(Operation::SendWithImmediate)).is_err());
    }

    #[test]
    fn cut_sizes_are_not_compared() {
        let (mut old, new) = (bandwidths("old", &[(2, 10), (4, 10)]), bandwidths("new", &[(2, 10), (4, 10)]));
        old.rows[1].is_whole = false;
        let comparison = Comparison::of(&old, &new, 5.0).unwrap();
        assert_eq!(comparison.changes().len(), 1);
        assert!(written(&comparison).contains(&"not in the baseline: 4 B".to_owned()));
    }

    #[test]
    fn differences_of_further_ports_are_listed() {
        let one = sample::environment(Measure::Bandwidth);
        let two = sample::over_two_ports(one.clone());
        let expected = [
            "ports of each side: 1 in the baseline, 2 in this run",
            "--qp-count: 1 in the baseline, 2 in this run",
            "--threads: 1 in the baseline, 2 in this run",
        ];
        assert_eq!(differences(&one, &two), expected);
        let mut other = two.clone();
        other.server.others[0].numa_node = Some(0);
        (other.path.others[0].mtu, other.client.others[0].port) = (1024, 3);
        let expected = [
            "port 2 of the test, the path's mtu bytes: 4096 in the baseline, 1024 in this run",
            "port 2 of the test, the server's numa node: 1 in the baseline, 0 in this run",
        ];
        assert_eq!(differences(&two, &other), expected);
    }

    #[test]
    fn no_common_size_is_not_a_success() {
        let comparison = Comparison::of(&bandwidths("old", &[(2, 10)]), &bandwidths("new", &[(4, 10)]), 5.0).unwrap();
        assert_eq!(comparison.outcome(), Outcome::Nothing);
    }

    #[test]
    fn completed_size_without_row_is_worse() {
        let old = bandwidths("old", &[(2, 10), (4, 10), (64, 10)]);
        let of = |new: &[(u64, u64)], unmeasured: &[u64]| {
            Comparison::of(&old, &bandwidths("new", new), 5.0).unwrap().with_unmeasured(unmeasured)
        };
        let blank = of(&[(64, 10)], &[4, 8]);
        assert_eq!(blank.outcome(), Outcome::Worse);
        let expected =
            ["worse: nothing was measured, and the baseline has a result: 4 B", "not measured in this run: 2 B"];
        assert_eq!(written(&blank)[2..], expected);
        assert_eq!(blank.gone(), [2, 4]);
        // Sizes that are missing in the baseline are not compared.
        assert_eq!(of(&[(64, 10)], &[8]).outcome(), Outcome::Held);
        assert_eq!(of(&[], &[64]).outcome(), Outcome::Worse, "it is in both");
    }

    #[test]
    fn change_from_zero_has_no_percentage() {
        let comparison = Comparison::of(&bandwidths("old", &[(2, 0)]), &bandwidths("new", &[(2, 10)]), 5.0).unwrap();
        assert_eq!(comparison.outcome(), Outcome::Held);
        assert!(written(&comparison)[1].contains(" - "), "{:?}", written(&comparison));
        let same = Comparison::of(&bandwidths("old", &[(2, 0)]), &bandwidths("new", &[(2, 0)]), 5.0).unwrap();
        assert!(written(&same)[1].ends_with("+0.0 %"));
    }

    #[test]
    fn other_differences_are_listed() {
        let old = sample::environment(Measure::Bandwidth);
        let mut new = old.clone();
        assert_eq!(differences(&old, &new), [""; 0]);
        new.plan.queues.queue_pairs = 4;
        new.plan.workload.operation = Operation::Read;
        new.plan.workload.sizes.clear();
        new.plan.workload.amount = crate::plan::RunLength::Messages { count: 7, warm_up: 3 };
        (new.client.cpus, new.client.memory) = (vec![4, 5], crate::plan::Memory::Cuda("0".to_owned()));
        (new.path.mtu, new.server.firmware, new.server.device) = (1024, "2".to_owned(), "mlx5_1".to_owned());
        new.server.gids.clear();
        let expected = [
            "test: write bw in the baseline, read bw in this run",
            "messages or time per size: 1s in the baseline, 7 messages in this run",
            "--warm-up: 100ms in the baseline, 3 messages in this run",
            "--qp-count: 1 in the baseline, 4 in this run",
            "the path's mtu bytes: 4096 in the baseline, 1024 in this run",
            "the client's cpus: 2 in the baseline, 4, 5 in this run",
            "the client's memory: host in the baseline, cuda 0 in this run",
            "the server's device: mlx5_0 in the baseline, mlx5_1 in this run",
            "the server's firmware: 28.39.1002 in the baseline, 2 in this run",
        ];
        assert_eq!(differences(&old, &new), expected);
    }
}
