//! The values of a plan under the names of their options, and which of them the user has given.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Measure, Operation, Plan, RunLength, size, time};

/// The options that the user has given, by their long names, such as `--iters`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given(BTreeSet<String>);

impl Given {
    /// Whether one of these is among them.
    pub fn has(&self, options: &[&str]) -> bool {
        options.iter().any(|option| self.0.contains(*option))
    }

    /// One of these that is among them.
    fn first<'a>(&self, options: &[&'a str]) -> Option<&'a str> {
        options.iter().copied().find(|option| self.0.contains(*option))
    }
}

impl FromIterator<String> for Given {
    fn from_iter<I: IntoIterator<Item = String>>(options: I) -> Self {
        Self(options.into_iter().collect())
    }
}

/// A value of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The options that set it, the one that is named where it was not given first.
    pub options: &'static [&'static str],
    /// The value, for people.
    pub value: String,
}

impl Plan {
    /// The operation, and what of it is measured.
    pub fn title(&self) -> String {
        let measure = match self.measure {
            Measure::Bandwidth => "bw".to_owned(),
            Measure::Latency(semantics) => format!("lat ({semantics})"),
        };
        format!("{} {measure}", self.operation)
    }

    /// All values but those of a side's own place.
    pub fn settings(&self) -> Vec<Setting> {
        let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
        let or = |value: Option<String>, none: &str| value.unwrap_or_else(|| none.to_owned());
        let (amount, warm_up) = match self.amount {
            RunLength::Time { warm_up, .. } if self.is_endless => ("forever".to_owned(), time::show(warm_up)),
            RunLength::Messages { count, warm_up } => (format!("{count} messages"), format!("{warm_up} messages")),
            RunLength::Time { time, warm_up } => (time::show(time), time::show(warm_up)),
        };
        let large = if self.is_each_large_signaled { ", and 1 above 8K" } else { "" };
        let values: [(&'static [&'static str], String); 29] = [
            (&["--msg-size", "--all-sizes", "--min-msg-size", "--max-msg-size", "--step-factor"], sizes(&self.sizes)),
            (&["--iters", "--duration", "--run-infinitely"], amount),
            (&["--warm-up"], warm_up),
            (&["--qp-count"], self.queue_pairs.to_string()),
            (&["--threads"], self.threads.to_string()),
            (&["--tx-depth"], self.tx_depth.to_string()),
            (&["--rx-depth"], self.rx_depth.to_string()),
            (&["--post-list"], self.post_list.to_string()),
            (&["--recv-post-list"], or(self.receive_list.map(|list| list.to_string()), "a quarter of --rx-depth")),
            (&["--cq-mod"], format!("{}{large}", self.cq_moderation)),
            (&["--bidirectional"], yes(self.is_bidirectional)),
            (&["--reversed"], yes(self.is_reversed)),
            (
                &["--inline"],
                or(self.inline.map(|bytes| bytes.to_string()), "0 for bw, and for lat 220 or what the device takes"),
            ),
            (&["--mtu"], or(self.mtu.map(|bytes| bytes.to_string()), "the most that both ports can")),
            (&["--qp-timeout"], self.qp_timeout.to_string()),
            (&["--sl"], self.service_level.to_string()),
            (&["--tclass"], self.traffic_class.to_string()),
            (&["--flow-label"], self.flow_label.to_string()),
            (&["--transport"], self.transport.to_string()),
            (&["--rdma-cm"], yes(self.uses_rdma_cm)),
            (&["--events"], yes(self.sleeps_on_events)),
            (&["--no-relaxed-ordering"], yes(!self.is_relaxed)),
            (&["--odp"], yes(self.is_on_demand)),
            (&["--mr-per-qp"], yes(self.has_own_regions)),
            (&["--validate"], yes(self.is_validated)),
            (&["--rate-limit"], or(self.rate_limit.map(|rate| format!("{rate} Gb/s")), "none")),
            (&["--burst-size"], or(self.burst_size.map(|size| format!("{size} messages")), "one message")),
            (&["--gap"], or(self.gap.map(time::show), "none")),
            (&["--interval"], or(self.interval.map(time::show), "by the length of the run")),
        ];
        let imm = matches!(self.operation, Operation::WriteWithImmediate | Operation::SendWithImmediate);
        let mut settings = vec![Setting { options: &["--imm"], value: yes(imm) }];
        settings.extend(values.map(|(options, value)| Setting { options, value }));
        settings
    }

    /// What a server was given for a test and the client wants otherwise: a sentence for each. The client's values count.
    pub fn differences(&self, given: &Given, server: &Self, server_given: &Given) -> Vec<String> {
        let mut sentences = Vec::new();
        if (self.operation, self.measure) != (server.operation, server.measure) {
            sentences.push(format!(
                "the server was started for {}; the client measures {}, which counts",
                server.title(),
                self.title()
            ));
        }
        for (theirs, ours) in server.settings().into_iter().zip(self.settings()) {
            let Some(option) = server_given.first(theirs.options) else { continue };
            if theirs.value != ours.value {
                let default = if given.has(ours.options) { "" } else { " (not given there)" };
                let (theirs, ours) = (theirs.value, ours.value);
                sentences
                    .push(format!("{option} of the server is {theirs}; the client has {ours}{default}, which counts"));
            }
        }
        sentences
    }
}

/// A few sizes by name, many by the first and the last.
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
    fn only_what_the_server_was_given_differs() {
        let client = Plan::default();
        let server = Plan { queue_pairs: 4, threads: 2, ..client.clone() };
        let none = Given::default();
        assert_eq!(client.differences(&none, &server, &none), Vec::<String>::new());
        let given: Given = ["--qp-count".to_owned(), "--tx-depth".to_owned()].into_iter().collect();
        let told = client.differences(&none, &server, &given);
        assert_eq!(told, ["--qp-count of the server is 4; the client has 1 (not given there), which counts"]);
        let told = client.differences(&given, &server, &given);
        assert_eq!(told, ["--qp-count of the server is 4; the client has 1, which counts"]);
    }

    #[test]
    fn sizes_differ_whichever_option_gave_them() {
        let client = Plan::default();
        let server = Plan { sizes: size::sweep(2, 1 << 20, 2.0), ..client.clone() };
        let given: Given = [String::from("--all-sizes")].into_iter().collect();
        let told = client.differences(&given, &server, &given);
        assert_eq!(told, ["--all-sizes of the server is 20 sizes from 2 to 1M; the client has 64K, which counts"]);
    }

    #[test]
    fn another_test_is_said() {
        let client = Plan::default();
        let server = Plan { operation: Operation::Read, ..client.clone() };
        let told = client.differences(&Given::default(), &server, &Given::default());
        assert_eq!(told, ["the server was started for read bw; the client measures write bw, which counts"]);
    }
}
