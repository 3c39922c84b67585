//! Hints in words.

use std::fmt;

use super::{Hint, Remedy};
use crate::plan::time;
use crate::report::bytes_in_words as bytes;
use crate::run::SHORTEST;

/// The options that hints name.
pub const OPTIONS: [&str; 20] = [
    "-d",
    "--remote-device",
    "--cpu",
    "--remote-cpu",
    "-m",
    "-l",
    "--threads",
    "-q",
    "-Q",
    "-t",
    "-n",
    "-D",
    "--no-relaxed-ordering",
    "--events",
    "-r",
    "--rate-limit",
    "--imm",
    "--transport",
    "-x",
    "--interval",
];

/// A short time, in the unit that leaves a digit of it.
fn short(seconds: f64) -> String {
    if seconds < 1e-4 { format!("{:.1} us", seconds * 1e6) } else { format!("{:.1} ms", seconds * 1e3) }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Softrnic { is_chosen } => {
                let (why, remedy) = match is_chosen {
                    true => ("The device is softrnic's", "."),
                    false => ("No RDMA device was found, so softrnic stands in", ". Name one with -d where the system has one."),
                };
                write!(f, "{why}: the numbers are of copies of memory by the processor, not of a network{remedy}")
            }
            Self::Far { host, device, node, thread, option, near } => {
                write!(f, "On {host} a thread may run on NUMA node {thread}, and {device} is at node {node}. Try {option} ")?;
                if near.is_empty() { write!(f, "with processors of node {node}.") } else { write!(f, "{near}.") }
            }
            Self::GpuFar { host, gpu, node, device, device_node, option } => write!(
                f,
                "On {host} {gpu} is at NUMA node {node}, and {device} at node {device_node}: what goes from one to the other crosses the link \
                 between processors. Try {option} with a device near the GPU, as `stride-perf devices` tells them."
            ),
            Self::SamePort { name, times } => {
                let (times, parts) = match times {
                    0..=2 => ("twice".to_owned(), "both"),
                    _ => (format!("{times} times"), "these"),
                };
                write!(f, "{name} is named {times}: {parts} parts of the test share its link. Try -d with another device for each.")
            }
            Self::MtuAsked(mtu) => write!(f, "Packets have {mtu} bytes, as -m says. Try -m 4096, or leave it away."),
            Self::MtuOfPort { host, mtu, is_ethernet: true } => write!(
                f,
                "Packets have {mtu} bytes, which is all that the port of {host} allows. Set the MTU of its network interface, and of the \
                 switches, to 4200 or more."
            ),
            Self::MtuOfPort { host, mtu, is_ethernet: false } => write!(
                f,
                "Packets have {mtu} bytes, which is all that the port of {host} allows. The subnet manager sets it: 4096 is the most."
            ),
            Self::Nothing(size) => write!(
                f,
                "At {} nothing was measured: the time was over before a message was. Try a longer -D, or -n.",
                bytes(*size)
            ),
            Self::Posting { size, rate, remedy, ports } => {
                let (size, rate, twice) = (bytes(*size), rate / 1e6, 2 * ports);
                write!(f, "Messages of up to {size} come to {rate:.2} million a second whatever the link carries: ")?;
                match remedy {
                    Remedy::PostList => write!(
                        f,
                        "one request is posted at a time. Try -l 16, or --threads {twice} with -q {twice}."
                    ),
                    Remedy::Threads => write!(f, "a thread posts no more. Try --threads {twice} with -q {twice}."),
                    Remedy::Reads(reads) => {
                        write!(f, "a queue pair has at most {reads} of them under way. Try -q {}.", 2 * twice)
                    }
                }
            }
            Self::EachSignaled => {
                f.write_str("Every message has a completion of its own, which costs small ones most. Try -Q 100, or leave it away.")
            }
            Self::Shallow(depth) => {
                write!(f, "At most {depth} messages are under way on a queue pair, too few to fill the link. Try -t 128.")
            }
            Self::Ordered => f.write_str(
                "Relaxed ordering is off, and the device writes in order: on some machines that halves what PCIe carries. Try without \
                 --no-relaxed-ordering.",
            ),
            Self::ShortWindow { size, seconds, sizes } => {
                match sizes {
                    1 => write!(f, "The window of {} was {}", bytes(*size), short(*seconds))?,
                    _ => write!(
                        f,
                        "The windows of {sizes} sizes were short, the shortest, of {}, {}",
                        bytes(*size),
                        short(*seconds)
                    )?,
                }
                f.write_str(", too short for a steady number. Try -D 5, or more messages by -n.")
            }
            Self::Apart { size, average, ports } => write!(
                f,
                "At {} the ports were under way together for a part of the window only: the row has {average:.3} Gb/s, and they have \
                 {ports:.3} Gb/s, each in its own. Try -D 5.",
                bytes(*size)
            ),
            Self::FewCompletions { size, messages, each } => write!(
                f,
                "The window of {} had {messages} messages, of which {each} have one completion: the number is off by as many. Try -Q 1, or a \
                 longer -D.",
                bytes(*size)
            ),
            Self::Jitter { size, slowest, median } => write!(
                f,
                "At {} the slowest interval has {slowest:.3} Gb/s and the one in the middle {median:.3} Gb/s: others use the link or the \
                 processors. Try --cpu with processors of their own, and a longer -D.",
                bytes(*size)
            ),
            Self::Lost { size, arrived, sent, service } => write!(
                f,
                "At {} {arrived} of {sent} messages arrived: {service} does not send again. Try a --rate-limit, or more receives with -r.",
                bytes(*size)
            ),
            Self::NoneArrived { size, sent, service } => write!(
                f,
                "At {} none of {sent} messages arrived, and {service} does not say why: GIDs may not reach each other, or a switch not carry the \
                 packets. Try --transport rc, which says more, other GIDs with -x, or a smaller -m.",
                bytes(*size)
            ),
            Self::Unknown(service) => write!(
                f,
                "The writes were sent, and it is not known how many arrived: {service} has no acknowledgements, and no completion tells the \
                 other side of a write. Try --imm, with which it counts them."
            ),
            Self::FewReceives { receives, sends } => write!(
                f,
                "A queue pair has up to {sends} messages under way and {receives} receives for them: a message that finds none is sent \
                 again after a pause. Try -r {sends}."
            ),
            Self::FewSamples(samples @ 1000..) => {
                write!(f, "p99.99 of {samples} samples is the longest of them. Try -n 100000 for one that says more.")
            }
            Self::FewSamples(samples) => {
                let which = if *samples < 100 { "p99, p99.9" } else { "p99.9" };
                write!(
                    f,
                    "{which} and p99.99 of {samples} samples are the longest of them. Try -n 100000 for some that say more."
                )
            }
            Self::Tail { size, p50, p99_9, governor } => {
                write!(
                    f,
                    "At {} the slowest of a thousand take {:.0} times as long as half of them: others use the processors, or these sleep. \
                     Try --cpu with processors of their own",
                    bytes(*size),
                    p99_9 / p50
                )?;
                match governor {
                    Some(governor) => write!(f, ", and the governor `performance` in place of `{governor}`."),
                    None => f.write_str("."),
                }
            }
            Self::Slept => f.write_str(
                "Threads slept until events came, and waking up is part of each time. Try without --events for the \
                 shortest ones.",
            ),
            Self::NoTwoIntervals(length) => write!(
                f,
                "Every size was over before two intervals of {} were, so that there is no slowest, median and fastest. Try a shorter \
                 --interval, or more messages by -n.",
                time::show(*length)
            ),
            Self::NoInterval(length) => write!(
                f,
                "Every size was over before half of an interval of {} was, so that none is told. Try {}more messages by -n.",
                time::show(*length),
                if *length > SHORTEST { "a shorter --interval, of 100ms or more, or " } else { "" }
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::endpoint::GpuInfo;
    use crate::plan::Transport;

    #[test]
    fn short_windows_are_not_none() {
        let of = |seconds| Hint::ShortWindow { size: 2, seconds, sizes: 1 }.to_string();
        assert!(of(0.0029).starts_with("The window of 2 B was 2.9 ms, too short"), "{}", of(0.0029));
        assert!(of(0.000_029_4).starts_with("The window of 2 B was 29.4 us, too short"), "{}", of(0.000_029_4));
    }

    #[test]
    fn each_percentile_that_is_the_longest_sample_is_named() {
        for (samples, said) in [
            (9999, "p99.99 of 9999 samples is the longest"),
            (1000, "p99.99 of 1000 samples is the longest"),
            (999, "p99.9 and p99.99 of 999 samples are the longest"),
            (99, "p99, p99.9 and p99.99 of 99 samples are the longest"),
        ] {
            let hint = Hint::FewSamples(samples).to_string();
            assert!(hint.starts_with(said), "{hint}");
        }
    }

    #[test]
    fn every_option_that_is_named_is_listed() {
        let words = |hint: &Hint| hint.to_string();
        let far = |option, near: &str| Hint::Far {
            host: "one".into(),
            device: "mlx5_0".into(),
            node: 0,
            thread: 1,
            option,
            near: near.into(),
        };
        let all = [
            Hint::Softrnic { is_chosen: false },
            Hint::GpuFar {
                host: "one".into(),
                gpu: GpuInfo { index: 4, name: "H100".into(), pci_address: "0000:9b:00.0".into(), numa_node: Some(1) },
                node: 1,
                device: "mlx5_0".into(),
                device_node: 0,
                option: "--remote-device",
            },
            far("--cpu", ""),
            far("--remote-cpu", "0-7"),
            Hint::SamePort { name: "mlx5_0 port 1".into(), times: 3 },
            Hint::MtuAsked(1024),
            Hint::MtuOfPort { host: "one".into(), mtu: 1024, is_ethernet: true },
            Hint::MtuOfPort { host: "one".into(), mtu: 1024, is_ethernet: false },
            Hint::Nothing(8 << 20),
            Hint::Posting { size: 4096, rate: 5e6, remedy: Remedy::PostList, ports: 1 },
            Hint::Posting { size: 4096, rate: 5e6, remedy: Remedy::Threads, ports: 1 },
            Hint::Posting { size: 4096, rate: 5e6, remedy: Remedy::Reads(16), ports: 1 },
            Hint::EachSignaled,
            Hint::Shallow(4),
            Hint::Ordered,
            Hint::ShortWindow { size: 64, seconds: 0.001, sizes: 1 },
            Hint::ShortWindow { size: 64, seconds: 0.001, sizes: 3 },
            Hint::FewCompletions { size: 8 << 20, messages: 100, each: 100 },
            Hint::Jitter { size: 64, slowest: 1.0, median: 2.0 },
            Hint::Lost { size: 64, arrived: 1, sent: 2, service: Transport::Ud },
            Hint::NoneArrived { size: 64, sent: 2, service: Transport::Uc },
            Hint::Unknown(Transport::Uc),
            Hint::FewReceives { receives: 64, sends: 128 },
            Hint::FewSamples(1000),
            Hint::FewSamples(999),
            Hint::Apart { size: 64, average: 24.0, ports: 192.0 },
            Hint::Tail { size: 64, p50: 1000.0, p99_9: 20_000.0, governor: None },
            Hint::Tail { size: 64, p50: 1000.0, p99_9: 20_000.0, governor: Some("powersave".into()) },
            Hint::Slept,
            Hint::NoTwoIntervals(Duration::from_secs(2)),
            Hint::NoInterval(Duration::from_secs(2)),
        ];
        for hint in &all {
            let text = words(hint);
            assert!(text.ends_with('.'), "{text}");
            for word in text.split([' ', ',', '.']).filter(|word| word.starts_with('-')) {
                assert!(OPTIONS.contains(&word), "{word} of: {text}");
            }
        }
        for option in OPTIONS {
            assert!(all.iter().any(|hint| words(hint).contains(option)), "{option}");
        }
    }
}
