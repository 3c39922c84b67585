//! `--like-perftest`: sets perftest's defaults for options whose default in stride-perf differs.

use std::time::Duration;

use super::options::Test;
use crate::plan::{Given, Measure, Operation, Plan, RunLength, Transport};

/// The most receives that perftest posts for a test over UC or UD.
const MOST_RECEIVES: u32 = 16000;

/// The values that `--like-perftest` sets for options that the user did not give.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Preset {
    is_on: bool,
    /// Messages per size.
    pub(super) count: Option<u64>,
    /// Whether a receive is posted for each message at once, up to [`MOST_RECEIVES`].
    posts_all: bool,
    /// How many receives are posted together.
    pub(super) receive_list: Option<u32>,
    /// How many bytes are sent inline.
    pub(super) inline: Option<u32>,
}

impl Preset {
    pub(super) fn of(test: &Test, given: &Given, operation: Operation, is_latency: bool, transport: Transport) -> Self {
        if !test.messages.like_perftest {
            return Self::default();
        }
        let is_write = matches!(operation, Operation::Write | Operation::WriteWithImmediate);
        let is_send = matches!(operation, Operation::Send | Operation::SendWithImmediate);
        let is_on_gpu = test.local.use_cuda.is_some() || test.remote.remote_use_cuda.is_some();
        // For writes, stride-perf mostly has the same default as perftest. For SRD, it has what the device supports.
        let inline = match transport {
            _ if !is_latency || is_on_gpu => None,
            Transport::Dc if is_write || is_send => Some(150),
            Transport::Rc | Transport::Uc | Transport::Xrc if is_send => Some(236),
            Transport::Ud if is_send => Some(188),
            _ => None,
        };
        // Over these transports, a message without a receive is lost.
        let is_lossy = matches!(transport, Transport::Uc | Transport::Ud) && operation.takes_receive();
        Self {
            is_on: true,
            count: (!is_latency && !is_write).then_some(1000),
            posts_all: is_lossy && !given.has(&["--rx-depth"]),
            receive_list: operation.takes_receive().then_some(1),
            inline,
        }
    }

    /// Returns the number of warm-up messages.
    pub(super) fn warm_up(&self) -> Option<u64> {
        self.is_on.then_some(0)
    }

    /// Returns how many receives are posted per queue pair.
    pub(super) fn receives(&self, amount: RunLength) -> Option<u32> {
        match amount {
            RunLength::Messages { count, .. } if self.posts_all => {
                Some(u32::try_from(count).unwrap_or(MOST_RECEIVES).min(MOST_RECEIVES))
            }
            _ => None,
        }
    }

    /// Returns the warm-up time of a test that lasts for `time`.
    pub(super) fn warm_up_of(&self, time: Duration) -> Option<Duration> {
        self.is_on.then_some(time / 4)
    }

    /// Returns a note for the user that lists the values as options.
    pub(super) fn note(&self, test: &Test, plan: &Plan) -> Option<String> {
        if !self.is_on {
            return None;
        }
        let mut set = Vec::new();
        if test.messages.warm_up.is_none() {
            set.push(match plan.workload.amount {
                RunLength::Messages { warm_up, .. } => format!("--warm-up {warm_up}"),
                RunLength::Time { warm_up, .. } => format!("--warm-up {}ms", warm_up.as_millis()),
            });
        }
        if test.messages.iters.is_none() && matches!(plan.workload.amount, RunLength::Messages { .. }) {
            set.extend(self.count.map(|count| format!("--iters {count}")));
        }
        set.extend(self.receives(plan.workload.amount).map(|receives| format!("--rx-depth {receives}")));
        if test.queues.receive_list.is_none() {
            set.extend(self.receive_list.map(|list| format!("--recv-post-list {list}")));
        }
        if test.queues.inline.is_none() {
            set.extend(self.inline.map(|bytes| format!("--inline {bytes}")));
        }
        let set = if set.is_empty() { "nothing: all of its options were given".to_owned() } else { set.join(" ") };
        let depth = format!("--tx-depth {}", plan.queues.tx_depth);
        let same = match plan.workload.measure {
            Measure::Bandwidth => format!("{depth}, --cq-mod {}", plan.queues.cq_moderation),
            Measure::Latency(_) => depth,
        };
        Some(format!(
            "--like-perftest sets {set}; other values, such as {same}, are perftest's defaults already or were given"
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::cli::{Job, Measurement, parse};
    use crate::plan::RunLength;

    fn client(words: &str) -> Measurement {
        match parse(format!("stride-perf {words} host").split_whitespace()) {
            Ok(Job::Measure(measurement)) => *measurement,
            other => panic!("{words}: {other:?}"),
        }
    }

    fn sets(words: &str) -> String {
        let notes = client(&format!("{words} --like-perftest")).notes;
        let [note] = &notes[..] else { panic!("{words}: {notes:?}") };
        let (set, rest) = note.strip_prefix("--like-perftest sets ").unwrap().split_once(';').unwrap();
        assert!(rest.contains("--tx-depth"), "{rest}");
        set.to_owned()
    }

    #[test]
    fn note_lists_the_values_set() {
        for (words, set) in [
            ("write bw", "--warm-up 0"),
            ("read bw", "--warm-up 0 --iters 1000"),
            ("send bw", "--warm-up 0 --iters 1000 --recv-post-list 1"),
            ("write lat", "--warm-up 0"),
            ("send lat", "--warm-up 0 --recv-post-list 1 --inline 236"),
            ("send lat -c xrc", "--warm-up 0 --recv-post-list 1 --inline 236"),
            ("send lat -c dc", "--warm-up 0 --recv-post-list 1 --inline 150"),
            ("write lat -c dc", "--warm-up 0 --inline 150"),
            ("send lat -c ud", "--warm-up 0 --rx-depth 1000 --recv-post-list 1 --inline 188"),
            ("send lat -c uc --use-cuda 0", "--warm-up 0 --rx-depth 1000 --recv-post-list 1"),
            ("send bw -c ud -n 50000", "--warm-up 0 --rx-depth 16000 --recv-post-list 1"),
            ("send bw -c uc -n 50 -r 64", "--warm-up 0 --recv-post-list 1"),
            ("send bw -c uc -D 10", "--warm-up 2500ms --recv-post-list 1"),
            ("write bw -c uc", "--warm-up 0"),
            ("write bw -D 10", "--warm-up 2500ms"),
            ("send bw -n 7 --warm-up 3 --recv-post-list 4", "nothing: all of its options were given"),
        ] {
            assert_eq!(sets(words), set, "{words}");
        }
    }

    #[test]
    fn plan_has_the_preset_unless_given() {
        let plan = client("send lat --like-perftest").plan;
        assert_eq!(plan.workload.amount, RunLength::Messages { count: 1000, warm_up: 0 });
        assert_eq!((plan.queues.inline, plan.queues.receive_list), (Some(236), Some(1)));
        let plan = client("send bw -c ud --like-perftest").plan;
        assert_eq!(plan.queues.rx_depth, 1000);
        let plan = client("send bw --like-perftest").plan;
        assert_eq!((plan.workload.amount, plan.queues.inline), (RunLength::Messages { count: 1000, warm_up: 0 }, None));
        let plan = client("write bw --like-perftest -D 8").plan;
        let (time, warm_up) = (Duration::from_secs(8), Duration::from_secs(2));
        assert_eq!(plan.workload.amount, RunLength::Time { time, warm_up });
        let plan = client("send lat --like-perftest -I 64 -n 50 --warm-up 5 --recv-post-list 2").plan;
        assert_eq!(plan.workload.amount, RunLength::Messages { count: 50, warm_up: 5 });
        assert_eq!((plan.queues.inline, plan.queues.receive_list), (Some(64), Some(2)));
        assert!(client("send lat").notes.is_empty());
    }
}
