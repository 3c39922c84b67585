//! The figures of bandwidth tests.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use stride_run::in_pairs;

/// What one side counted in its window. A message counts if the side polled its completion within the window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bandwidth {
    /// Number of messages on all queue pairs.
    pub messages: u64,
    /// Length of the window in seconds.
    #[serde(rename = "window_seconds")]
    pub seconds: f64,
    /// Number of messages in each interval. All intervals have the same length, so a partial interval at the end is
    /// left out.
    #[serde(rename = "interval_messages")]
    pub intervals: Vec<u64>,
    /// Length of each interval in seconds.
    #[serde(rename = "interval_seconds")]
    pub interval: f64,
    /// Processor time of all threads of the side, relative to the length of the window. The value 1.0 means that one
    /// processor was used all the time.
    #[serde(rename = "cpu_share")]
    pub cpu: Option<f64>,
    /// Number of messages sent in the whole step, including the warm-up. Known if messages may be lost, even for plain
    /// writes, whose arrivals are not counted.
    #[serde(rename = "sent_messages", default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<u64>,
    /// Number of messages that arrived in the whole step, including the warm-up, as the peer counted them. For plain
    /// writes, this is known only if none arrived.
    #[serde(rename = "arrived_messages", default, skip_serializing_if = "Option::is_none")]
    pub arrived: Option<u64>,
    /// The figures of each port in its own window, if the test uses several ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Self>,
}

/// By default, there are fewer intervals than this, unless each of them lasts one second or more.
const MANY: usize = 20;

/// Minimum average number of completions per interval. With fewer, intervals would be imprecise, because messages are
/// counted by completions.
const COMPLETIONS: u64 = 16;

/// The rates that result from messages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Rate in 10^9 bits of payload per second.
    pub gigabits_per_second: f64,
    /// Rate in 2^20 bytes of payload per second.
    pub mebibytes_per_second: f64,
    /// Rate in messages per second.
    pub messages_per_second: f64,
}

impl Rates {
    /// Returns the rates for `messages` messages of `size` bytes in `seconds`. All of them are zero if the time is
    /// zero.
    pub fn of(messages: u64, size: u64, seconds: f64) -> Self {
        let messages_per_second = if seconds > 0.0 { messages as f64 / seconds } else { 0.0 };
        let bytes = messages_per_second * size as f64;
        Self {
            gigabits_per_second: bytes * 8.0 / 1e9,
            mebibytes_per_second: bytes / f64::from(1 << 20),
            messages_per_second,
        }
    }
}

impl Bandwidth {
    /// Whether no message completed. If messages were sent but none arrived, that counts as a result.
    pub fn is_blank(&self) -> bool {
        self.messages == 0 && (self.sent.unwrap_or(0) == 0 || self.arrived.is_none())
    }

    /// Returns the average rates over the window.
    pub fn average(&self, size: u64) -> Rates {
        Rates::of(self.messages, size, self.seconds)
    }

    /// Returns the rates of the slowest, the median and the fastest interval, or `None` if the window has less than two
    /// intervals.
    pub fn jitter(&self, size: u64) -> Option<[Rates; 3]> {
        let mut intervals = self.intervals.clone();
        intervals.sort_unstable();
        let (first, last) = (*intervals.first()?, *intervals.last()?);
        let middle = *intervals.get(intervals.len() / 2)?;
        (intervals.len() > 1).then(|| [first, middle, last].map(|messages| Rates::of(messages, size, self.interval)))
    }

    /// Merges intervals that are too short. `moderation` is the number of messages that share a completion.
    #[must_use]
    pub(crate) fn settled(mut self, moderation: u32) -> Self {
        let needed = COMPLETIONS * u64::from(moderation);
        let average = |intervals: &[u64]| intervals.iter().sum::<u64>() / intervals.len().max(1) as u64;
        while !self.intervals.is_empty()
            && (self.intervals.len() >= MANY && self.interval < 1.0 || average(&self.intervals) < needed)
        {
            self.twice();
        }
        self
    }

    /// Merges each two adjacent intervals, which doubles their length.
    fn twice(&mut self) {
        in_pairs(&mut self.intervals);
        self.interval *= 2.0;
    }

    /// Merges intervals until their length is `length`, which must be the old length times a power of two.
    #[must_use]
    pub(crate) fn with_interval(mut self, length: f64) -> Self {
        while self.interval > 0.0 && self.interval * 1.5 < length && !self.intervals.is_empty() {
            self.twice();
        }
        self
    }

    /// Combines both directions of a test, each of which has its own window. The result contains the messages of both,
    /// and its rate is the sum of both average rates. If messages may be lost, only those that arrived count.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        let both = self.reached(other).sum(&other.reached(self));
        Self { ports: self.by_port(other, Self::with), ..both }
    }

    /// Returns the part of these figures that arrived, if the receiver has counted arrivals.
    fn reached(&self, receiver: &Self) -> Self {
        match (self.sent, receiver.arrived) {
            (Some(_), Some(arrived)) => self.part(arrived),
            (Some(_), None) if receiver.has_port_counts() => self.of_ports(self.by_port(receiver, Self::reached)),
            _ => self.clone(),
        }
    }

    /// Whether the only information of the receiver is that nothing arrived over some ports.
    fn has_port_counts(&self) -> bool {
        self.arrived.is_none() && self.ports.iter().any(|port| port.arrived.is_some())
    }

    /// Returns the combined figures of the ports, in which only messages that arrived count.
    fn of_ports(&self, ports: Vec<Self>) -> Self {
        match ports.iter().cloned().reduce(|one, other| one.sum(&other)) {
            Some(all) => Self { cpu: self.cpu, sent: self.sent, arrived: self.arrived, ports, ..all },
            None => self.clone(),
        }
    }

    /// Calls `both` with each port and its peer.
    fn by_port(&self, other: &Self, both: impl Fn(&Self, &Self) -> Self) -> Vec<Self> {
        if self.ports.len() != other.ports.len() {
            return Vec::new();
        }
        self.ports.iter().zip(&other.ports).map(|(one, other)| both(one, other)).collect()
    }

    /// Scales the figures down to the messages that arrived.
    fn part(&self, arrived: u64) -> Self {
        let share = (arrived as f64 / self.sent.unwrap_or(0).max(1) as f64).min(1.0);
        let of = |messages: u64| (messages as f64 * share) as u64;
        Self {
            messages: of(self.messages),
            intervals: self.intervals.iter().copied().map(of).collect(),
            ..self.clone()
        }
    }

    fn sum(&self, other: &Self) -> Self {
        let messages = self.messages.saturating_add(other.messages);
        let rate = |one: &Self| if one.seconds > 0.0 { one.messages as f64 / one.seconds } else { 0.0 };
        let rates = rate(self) + rate(other);
        let seconds = if rates > 0.0 { messages as f64 / rates } else { self.seconds.max(other.seconds) };
        let interval = self.interval.max(other.interval);
        let [a, b] = [self, other].map(|one| one.clone().with_interval(interval).intervals);
        let intervals = a.iter().zip(&b).map(|(a, b)| a.saturating_add(*b)).collect();
        let cpu = self.cpu.zip(other.cpu).map(|(a, b)| a + b);
        // If a value is unknown for one direction, it is unknown for both together.
        let sum = |a: Option<u64>, b: Option<u64>| a.zip(b).map(|(a, b)| a.saturating_add(b));
        let (sent, arrived) = (sum(self.sent, other.sent), sum(self.arrived, other.arrived));
        Self { messages, seconds, intervals, interval, cpu, sent, arrived, ports: Vec::new() }
    }

    /// Whether these are the figures of a passive side that only counts arrivals.
    pub(crate) fn is_receiver_side(&self) -> bool {
        self.sent.is_none() && (self.arrived.is_some() || self.has_port_counts())
    }

    /// Returns the figures of the sender with what the receiver counted. The rate is that of the messages that arrived.
    #[must_use]
    pub(crate) fn received(&self, receiver: &Self) -> Self {
        let (sent, arrived, cpu) = (self.sent, receiver.arrived, self.cpu);
        let ports = self.by_port(receiver, Self::received);
        if receiver.messages > 0 && receiver.seconds > 0.0 {
            return Self { sent, arrived, cpu, ports, ..receiver.clone() };
        }
        // The receiver has not measured a window in which messages arrived.
        match arrived {
            Some(count) => Self { arrived, intervals: Vec::new(), ports, ..self.part(count) },
            None => Self { ports, ..self.of_ports(self.by_port(receiver, Self::reached)) },
        }
    }

    /// Returns the length of the window as a duration.
    pub fn window(&self) -> Duration {
        Duration::try_from_secs_f64(self.seconds).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9 * expected.abs().max(1.0), "{found} {expected}");
    }

    #[test]
    fn rates_use_decimal_bits_and_binary_bytes() {
        let rates = Rates::of(1000, 1 << 20, 2.0);
        near(rates.gigabits_per_second, 4.194304);
        near(rates.mebibytes_per_second, 500.0);
        near(rates.messages_per_second, 500.0);
        assert_eq!(Rates::of(5, 5, 0.0), Rates::of(0, 5, 1.0));
    }

    #[test]
    fn jitter_requires_two_intervals() {
        let mut bandwidth = Bandwidth { interval: 0.5, intervals: vec![9], ..Bandwidth::default() };
        assert_eq!(bandwidth.jitter(8), None);
        bandwidth.intervals = vec![9, 1, 5];
        let [slow, middle, fast] =
            bandwidth.jitter(8).map(|rates| rates.map(|rates| rates.messages_per_second)).unwrap();
        near(slow, 2.0);
        near(middle, 10.0);
        near(fast, 18.0);
    }

    #[test]
    fn short_intervals_are_merged() {
        let of = |intervals: Vec<u64>| Bandwidth { interval: 0.001, intervals, ..Bandwidth::default() };
        let settled = of(vec![1000; 30]).settled(1);
        assert_eq!((settled.intervals, settled.interval), (vec![2000; 15], 0.002));
        // Intervals that have few completions are imprecise, so they are merged too.
        let settled = of((0..16).map(|at| 200 * (at % 2)).collect()).settled(100);
        assert_eq!((settled.intervals, settled.interval), (vec![1600], 0.016));
        assert_eq!(of(vec![1; 8]).settled(1).jitter(1), None);
        let long = Bandwidth { interval: 1.0, intervals: vec![1000; 50], ..Bandwidth::default() };
        assert_eq!(long.clone().settled(1), long);
    }

    #[test]
    fn directions_with_different_intervals_add_up() {
        let one = Bandwidth { interval: 0.001, intervals: vec![1, 2, 3, 4, 5], ..Bandwidth::default() };
        let other = Bandwidth { interval: 0.002, intervals: vec![10, 10, 10], ..Bandwidth::default() };
        for both in [one.with(&other), other.with(&one)] {
            assert_eq!((both.intervals, both.interval), (vec![13, 17], 0.002));
        }
    }

    #[test]
    fn arrivals_determine_the_rate() {
        let sent = Bandwidth { messages: 100, seconds: 1.0, cpu: Some(1.0), sent: Some(128), ..Bandwidth::default() };
        let of = |messages, seconds, arrived| Bandwidth {
            messages,
            seconds,
            arrived,
            cpu: Some(0.5),
            ..Bandwidth::default()
        };
        let taken = of(90, 2.0, Some(112));
        assert!(taken.is_receiver_side() && !sent.is_receiver_side() && !sent.received(&taken).is_receiver_side());
        let both = sent.received(&taken);
        assert_eq!((both.messages, both.seconds, both.cpu), (90, 2.0, Some(1.0)));
        assert_eq!((both.sent, both.arrived), (Some(128), Some(112)));
        let both = sent.received(&of(0, 0.0, Some(64)));
        assert_eq!((both.messages, both.seconds), (50, 1.0));
        assert_eq!(sent.received(&of(0, 0.0, Some(0))).messages, 0);
    }

    #[test]
    fn arrivals_of_both_directions_add_up() {
        let of = |messages, sent, arrived| Bandwidth {
            messages,
            seconds: 1.0,
            intervals: vec![messages / 2, messages / 2],
            interval: 0.5,
            sent: Some(sent),
            arrived: Some(arrived),
            ..Bandwidth::default()
        };
        // In one direction, 64 of 128 messages arrived. In the other direction, all 256 arrived.
        let (one, other) = (of(100, 128, 256), of(200, 256, 64));
        let both = one.with(&other);
        assert_eq!((both.messages, both.sent, both.arrived), (250, Some(384), Some(320)));
        assert_eq!(both.intervals, [125, 125]);
        near(both.average(1).messages_per_second, 250.0);
        let none = of(100, 128, 0).with(&of(200, 256, 0));
        assert_eq!((none.messages, none.arrived), (0, Some(0)));
        near(none.average(1).messages_per_second, 0.0);
    }

    #[test]
    fn directions_of_each_port_add_up() {
        let of = |messages: &[u64]| {
            let of = |messages| Bandwidth { messages, seconds: 1.0, ..Bandwidth::default() };
            Bandwidth { ports: messages.iter().copied().map(of).collect(), ..of(messages.iter().sum()) }
        };
        let messages = |both: &Bandwidth| both.ports.iter().map(|port| port.messages).collect::<Vec<_>>();
        let both = of(&[100, 50]).with(&of(&[10, 5]));
        assert_eq!((both.messages, messages(&both)), (165, vec![110, 55]));
        // If the peers have figures for different numbers of ports, or one of them has none, the figures of each port
        // are unknown.
        assert_eq!(messages(&of(&[100, 50]).with(&of(&[7]))), [0; 0]);
        let (mut sent, mut taken) = (of(&[100, 50]), of(&[90, 40]));
        for port in &mut sent.ports {
            port.sent = Some(128);
        }
        for port in &mut taken.ports {
            port.arrived = Some(112);
        }
        let both = sent.received(&taken);
        assert_eq!(messages(&both), [90, 40]);
        assert_eq!((both.ports[1].sent, both.ports[1].arrived), (Some(128), Some(112)));
    }

    #[test]
    fn port_without_arrivals_counts_nothing() {
        let side = |seconds, ports: [(u64, Option<u64>, Option<u64>); 2]| {
            let of = |(messages, sent, arrived)| Bandwidth {
                messages,
                seconds,
                intervals: vec![messages / 2; 2],
                interval: 0.5,
                sent,
                arrived,
                cpu: Some(0.5),
                ..Bandwidth::default()
            };
            let [one, two] = ports.map(of);
            Bandwidth { arrived: None, ports: vec![one.clone(), two.clone()], ..one.sum(&two) }
        };
        let sends = side(1.0, [(100, Some(128), None), (60, Some(128), None)]);
        // It is unknown how many messages arrived over the first port. Over the second port, none arrived.
        let takes = side(0.0, [(0, None, None), (0, None, Some(0))]);
        assert!(takes.is_receiver_side());
        let both = sends.received(&takes);
        assert_eq!((both.messages, both.sent, both.arrived, both.cpu), (100, Some(256), None, Some(1.0)));
        assert_eq!(both.intervals, [50, 50]);
        near(both.average(1).messages_per_second, 100.0);
        let ports = |both: &Bandwidth| both.ports.iter().map(|port| (port.messages, port.arrived)).collect::<Vec<_>>();
        assert_eq!(ports(&both), [(100, None), (0, Some(0))]);
        // With both directions, the figures of the other direction include all of its ports.
        let back = side(1.0, [(30, Some(64), None), (20, Some(64), Some(0))]);
        for both in [sends.with(&back), back.with(&sends)] {
            assert_eq!((both.messages, both.sent, both.arrived), (150, Some(384), None));
            near(both.average(1).messages_per_second, 150.0);
            assert_eq!(ports(&both), [(130, None), (20, None)]);
        }
    }

    #[test]
    fn direction_without_arrivals_counts_nothing() {
        let of =
            |messages, arrived| Bandwidth { messages, seconds: 1.0, sent: Some(128), arrived, ..Bandwidth::default() };
        // The direction in which nothing arrived counts as zero. How many messages of the other direction arrived is
        // unknown.
        for (one, other) in [(of(100, None), of(30, Some(0))), (of(30, Some(0)), of(100, None))] {
            let both = one.with(&other);
            assert_eq!((both.messages, both.sent, both.arrived), (30, Some(256), None));
        }
        let none = of(100, Some(0)).with(&of(100, Some(0)));
        assert_eq!((none.messages, none.arrived, none.is_blank()), (0, Some(0), false));
        assert!(of(0, None).is_blank(), "no completion came");
    }

    #[test]
    fn two_directions_add_up() {
        let one = Bandwidth { messages: 100, seconds: 1.0, cpu: Some(1.0), ..Bandwidth::default() };
        let other = Bandwidth { messages: 100, seconds: 2.0, cpu: Some(0.5), ..Bandwidth::default() };
        let both = one.with(&other);
        near(both.average(1).messages_per_second, 150.0);
        assert_eq!((both.messages, both.cpu), (200, Some(1.5)));
        assert!(one.seconds < both.seconds && both.seconds < other.seconds);
        // One direction was cut short before its first message completed.
        let none = Bandwidth { seconds: 3.0, ..Bandwidth::default() };
        near(none.with(&other).average(1).messages_per_second, 50.0);
        assert_eq!((none.with(&none).messages, none.with(&none).seconds), (0, 3.0));
    }
}
