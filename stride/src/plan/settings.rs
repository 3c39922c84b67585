//! The values of a plan by the names of their options, and the options that the user gave.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::{Arg, ArgAction, Args, Command};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Measure, Operation, Placement, Plan, QpAttributes, Queues, RunLength, Sampling, Workload, size, time};

/// The options that the user gave, by their long names, such as `--iters`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given(BTreeSet<String>);

impl Given {
    /// Whether the user gave any of these options.
    pub fn has(&self, options: &[&str]) -> bool {
        options.iter().any(|option| self.0.contains(*option))
    }

    /// Returns the first of these options that the user gave.
    fn first<'a>(&self, options: &'a [String]) -> Option<&'a str> {
        options.iter().map(String::as_str).find(|option| self.0.contains(*option))
    }
}

impl FromIterator<String> for Given {
    fn from_iter<I: IntoIterator<Item = String>>(options: I) -> Self {
        Self(options.into_iter().collect())
    }
}

/// A value of a plan, together with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The options that can set the value. The main one comes first.
    pub options: Vec<String>,
    /// The formatted value.
    pub value: String,
}

/// Returns the options that the parts of a plan declare for clap. The id of each option is the name of its member in
/// JSON.
pub(crate) fn declared() -> Command {
    let parts = [
        Workload::augment_args,
        Queues::augment_args,
        QpAttributes::augment_args,
        Sampling::augment_args,
        Placement::augment_args,
    ];
    parts.into_iter().fold(Command::new("plan"), |command, augment| augment(command))
}

impl Setting {
    fn new(options: &[&str], value: String) -> Self {
        Self { options: options.iter().map(|option| (*option).to_owned()).collect(), value }
    }

    /// Formats the value of an option. If the option has no value, formats the default that its help names.
    fn of(option: &Arg, plan: &Value) -> Self {
        let member = option.get_id().as_str();
        let is_negated = matches!(option.get_action(), ArgAction::SetFalse);
        let value = match &plan[member] {
            Value::Null => {
                let help = option.get_help().map(ToString::to_string).unwrap_or_default();
                let default =
                    help.rsplit_once("[default: ").map(|(_, text)| text.trim_end_matches(['.', ']']).to_owned());
                default.unwrap_or_else(|| "none".to_owned())
            }
            Value::Bool(is) => yes(*is != is_negated),
            Value::Number(number) if member.ends_with("_seconds") => number
                .as_f64()
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                .map_or_else(String::new, time::show),
            Value::Number(number) if member.ends_with("_gigabits_per_second") => format!("{number} Gb/s"),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        Self { options: vec![format!("--{}", option.get_long().unwrap_or(member))], value }
    }
}

fn yes(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}

impl Plan {
    /// Returns the name of the test, which consists of the operation and the kind of measurement.
    pub fn title(&self) -> String {
        let measure = match self.workload.measure {
            Measure::Bandwidth => "bw".to_owned(),
            Measure::Latency(semantics) => format!("lat ({semantics})"),
        };
        format!("{} {measure}", self.workload.operation)
    }

    /// Returns all values of the plan except the configuration of each side. Values that several options set come
    /// first, and the declared options follow.
    pub fn settings(&self) -> Vec<Setting> {
        let Self { workload, queues, .. } = self;
        let (amount, warm_up) = match workload.amount {
            RunLength::Time { warm_up, .. } if workload.is_endless => ("forever".to_owned(), time::show(warm_up)),
            RunLength::Messages { count, warm_up } => (format!("{count} messages"), format!("{warm_up} messages")),
            RunLength::Time { time, warm_up } => (time::show(time), time::show(warm_up)),
        };
        let large = if queues.is_each_large_signaled { ", and 1 above 8K" } else { "" };
        let imm = matches!(workload.operation, Operation::WriteWithImmediate | Operation::SendWithImmediate);
        let all_sizes = ["--msg-size", "--all-sizes", "--min-msg-size", "--max-msg-size", "--step-factor"];
        let mut settings = vec![
            Setting::new(&["--imm"], yes(imm)),
            Setting::new(&all_sizes, sizes(&workload.sizes)),
            Setting::new(&["--iters", "--duration", "--run-infinitely"], amount),
            Setting::new(&["--warm-up"], warm_up),
            Setting::new(&["--qp-count"], queues.queue_pairs.to_string()),
            Setting::new(&["--threads"], queues.threads.to_string()),
            Setting::new(&["--tx-depth"], queues.tx_depth.to_string()),
            Setting::new(&["--cq-mod"], format!("{}{large}", queues.cq_moderation)),
            Setting::new(&["--bidirectional"], yes(workload.direction.is_both())),
            Setting::new(&["--reversed"], yes(workload.direction.is_reversed())),
        ];
        let plan = serde_json::to_value(self).unwrap_or_default();
        // Counters are left out, because they do not affect the figures.
        let options = declared();
        let options = options.get_arguments().filter(|option| option.get_id() != "counters");
        settings.extend(options.map(|option| Setting::of(option, &plan)));
        settings
    }

    /// Lists the options for which the server's user gave a value that differs from the client's. The client's values
    /// apply.
    pub fn differences(&self, given: &Given, server: &Self, server_given: &Given) -> Vec<String> {
        let mut sentences = Vec::new();
        if (self.workload.operation, self.workload.measure) != (server.workload.operation, server.workload.measure) {
            sentences.push(format!(
                "the server was started for {}; the client's {} applies",
                server.title(),
                self.title()
            ));
        }
        for (theirs, ours) in server.settings().into_iter().zip(self.settings()) {
            let Some(option) = server_given.first(&theirs.options) else { continue };
            if theirs.value != ours.value {
                let default = if ours.options.iter().any(|option| given.has(&[option.as_str()])) {
                    ""
                } else {
                    " (not given there)"
                };
                let (theirs, ours) = (theirs.value, ours.value);
                sentences.push(format!("{option} of the server is {theirs}; the client's {ours}{default} applies"));
            }
        }
        sentences
    }
}

/// Formats a list of sizes: all of them if they are few, otherwise the first and the last.
fn sizes(all: &[u64]) -> String {
    match all {
        [] => "none".to_owned(),
        [first, .., last] if all.len() > 4 => {
            format!("{} sizes from {} to {}", all.len(), size::show(*first), size::show(*last))
        }
        _ => all.iter().map(|size| size::show(*size)).collect::<Vec<_>>().join(","),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_given_server_options_are_reported() {
        let client = Plan::default();
        let server = Plan { queues: Queues { queue_pairs: 4, threads: 2, ..client.queues.clone() }, ..client.clone() };
        let none = Given::default();
        assert_eq!(client.differences(&none, &server, &none), Vec::<String>::new());
        let given: Given = ["--qp-count".to_owned(), "--tx-depth".to_owned()].into_iter().collect();
        let differences = client.differences(&none, &server, &given);
        assert_eq!(differences, ["--qp-count of the server is 4; the client's 1 (not given there) applies"]);
        let differences = client.differences(&given, &server, &given);
        assert_eq!(differences, ["--qp-count of the server is 4; the client's 1 applies"]);
    }

    #[test]
    fn sizes_are_compared_for_any_size_option() {
        let client = Plan::default();
        let server = Plan {
            workload: Workload { sizes: size::sweep(2, 1 << 20, 2.0), ..client.workload.clone() },
            ..client.clone()
        };
        let given: Given = [String::from("--all-sizes")].into_iter().collect();
        let differences = client.differences(&given, &server, &given);
        assert_eq!(differences, ["--all-sizes of the server is 20 sizes from 2 to 1M; the client's 64K applies"]);
    }

    #[test]
    fn different_test_is_reported() {
        let client = Plan::default();
        let server =
            Plan { workload: Workload { operation: Operation::Read, ..client.workload.clone() }, ..client.clone() };
        let differences = client.differences(&Given::default(), &server, &Given::default());
        assert_eq!(differences, ["the server was started for read bw; the client's write bw applies"]);
    }
}
