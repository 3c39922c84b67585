//! The texts of hints.

use std::fmt;

use super::{Hint, Remedy};
use crate::endpoint::interval::SHORTEST;
use crate::plan::time;
use crate::report::bytes_in_words as bytes;

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

/// Formats a short time. The unit is one in which the number has at least one digit before the decimal point.
fn short(seconds: f64) -> String {
    if seconds < 1e-4 { format!("{:.1} us", seconds * 1e6) } else { format!("{:.1} ms", seconds * 1e3) }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Softrnic { is_chosen } => {
                let (why, remedy) = match is_chosen {
                    true => ("The device is softrnic", "."),
                    false => ("No RDMA device found, using softrnic", ". Name an RDMA device with -d if the system has one."),
                };
                write!(f, "{why}: the figures measure memory copies by the processor, not a network{remedy}")
            }
            Self::Far { host, device, node, thread, option, near } => {
                write!(f, "On {host}, a thread may run on NUMA node {thread}, and {device} is on node {node}. Try {option} ")?;
                if near.is_empty() { write!(f, "with processors of node {node}.") } else { write!(f, "{near}.") }
            }
            Self::GpuFar { host, gpu, node, device, device_node, option } => write!(
                f,
                "On {host}, {gpu} is on NUMA node {node}, and {device} on node {device_node}: the data crosses the link \
                  between processors. Try {option} with a device near the GPU (`stride-perf devices` lists them)."
            ),
            Self::SamePort { name, times } => {
                let (times, parts) = match times {
                    0..=2 => ("twice".to_owned(), "both"),
                    _ => (format!("{times} times"), "these"),
                };
                write!(f, "{name} is named {times}, so {parts} parts of the test share its link. Try -d with a different device \
                 for each.")
            }
            Self::MtuAsked(mtu) => write!(f, "The path MTU is {mtu} bytes, as given with -m. Try -m 4096, or leave it out."),
            Self::MtuOfPort { host, mtu, is_ethernet: true } => write!(
                f,
                "The path MTU is {mtu} bytes, the limit of the port of {host}. Set the MTU of its network interface and \
                  of the switches to 4200 or more."
            ),
            Self::MtuOfPort { host, mtu, is_ethernet: false } => write!(
                f,
                "The path MTU is {mtu} bytes, the limit of the port of {host}. Raise it in the subnet manager, up to 4096."
            ),
            Self::Nothing(size) => write!(
                f,
                "{}: nothing was measured, because no message completed in time. Try a longer -D, or -n.",
                bytes(*size)
            ),
            Self::Posting { size, rate, remedy, ports } => {
                let (size, rate, twice) = (bytes(*size), rate / 1e6, 2 * ports);
                write!(f, "Messages of up to {size} reach {rate:.2} million a second regardless of the link: ")?;
                match remedy {
                    Remedy::PostList => write!(
                        f,
                        "one request is posted at a time. Try -l 16, or --threads {twice} with -q {twice}."
                    ),
                    Remedy::Threads => write!(f, "a thread posts no more. Try --threads {twice} with -q {twice}."),
                    Remedy::Reads(reads) => {
                        write!(f, "a queue pair has at most {reads} of them in flight. Try -q {}.", 2 * twice)
                    }
                }
            }
            Self::EachSignaled => {
                f.write_str("Every message requests a completion, which slows small messages most. Try -Q 100, or leave it out.")
            }
            Self::Shallow(depth) => {
                write!(f, "At most {depth} messages are in flight per queue pair, too few to fill the link. Try -t 128.")
            }
            Self::Ordered => f.write_str(
                "Relaxed ordering is off. On some machines that halves PCIe bandwidth. Try without --no-relaxed-ordering.",
            ),
            Self::ShortWindow { size, seconds, sizes } => {
                let (size, time) = (bytes(*size), short(*seconds));
                match sizes {
                    1 => write!(f, "The window of {size} was {time}, too short for a stable figure.")?,
                    _ => write!(
                        f,
                        "The windows of {sizes} sizes were too short for stable figures; the shortest was {time}, for {size}."
                    )?,
                }
                f.write_str(" Try -D 5, or raise -n.")
            }
            Self::Apart { size, average, ports } => write!(
                f,
                "{}: the ports ran at the same time for only part of the window, so the row shows {average:.3} Gb/s and \
                  the ports {ports:.3} Gb/s in their own windows. Try -D 5.",
                bytes(*size)
            ),
            Self::FewCompletions { size, messages, each } => write!(
                f,
                "The window of {} had {messages} messages with a completion every {each}, so the figure may be off by \
                 {each} messages. Try -Q 1, or a longer -D.",
                bytes(*size)
            ),
            Self::Jitter { size, slowest, median } => write!(
                f,
                "{}: the slowest interval has {slowest:.3} Gb/s and the median {median:.3} Gb/s; other programs may use \
                  the link or the processors. Try --cpu with dedicated processors, and a longer -D.",
                bytes(*size)
            ),
            Self::Lost { size, arrived, sent, service } => write!(
                f,
                "{}: {arrived} of {sent} messages arrived; {service} does not retransmit. Try a --rate-limit, or more \
                 receives with -r.",
                bytes(*size)
            ),
            Self::NoneArrived { size, sent, service } => write!(
                f,
                "{}: none of {sent} messages arrived, and {service} reports no cause. The GIDs may not reach each \
                 other, or a switch drops the packets. Try --transport rc, which reports more, other GIDs with -x, or a \
                  smaller -m.",
                bytes(*size)
            ),
            Self::Unknown(service) => write!(
                f,
                "The figure counts writes sent; {service} has no acknowledgements, so the number that arrived is unknown. \
                 Try --imm, which counts received messages."
            ),
            Self::FewReceives { receives, sends } => write!(
                f,
                "A queue pair has up to {sends} messages in flight and only {receives} receives; a message without a \
                 receive is retransmitted after a pause. Try -r {sends}."
            ),
            Self::FewSamples(samples @ 1000..) => {
                write!(f, "p99.99 of {samples} samples equals the maximum. Try -n 100000.")
            }
            Self::FewSamples(samples) => {
                let which = if *samples < 100 { "p99, p99.9" } else { "p99.9" };
                write!(
                    f,
                    "{which} and p99.99 of {samples} samples equal the maximum. Try -n 100000."
                )
            }
            Self::Tail { size, p50, p99_9, governor } => {
                write!(
                    f,
                    "{}: p99.9 is {:.0} times the median; other programs may use the processors, or the processors may \
                     sleep. Try --cpu with dedicated processors",
                    bytes(*size),
                    p99_9 / p50
                )?;
                match governor {
                    Some(governor) => write!(f, ", and the governor `performance` instead of `{governor}`."),
                    None => f.write_str("."),
                }
            }
            Self::Slept => f.write_str(
                "Threads slept until events arrived, and each time includes the wake-up. Try without --events for the \
                 lowest latency.",
            ),
            Self::NoTwoIntervals(length) => write!(
                f,
                "Every size ended before two intervals of {}, so slowest, median and fastest are missing. Try a shorter \
                  --interval, or raise -n.",
                time::show(*length)
            ),
            Self::NoInterval(length) => write!(
                f,
                "Every size ended within half an interval of {}, so no interval is reported. Try {}a higher -n.",
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
    fn short_windows_are_not_rounded_to_zero() {
        let of = |seconds| Hint::ShortWindow { size: 2, seconds, sizes: 1 }.to_string();
        assert!(of(0.0029).starts_with("The window of 2 B was 2.9 ms, too short"), "{}", of(0.0029));
        assert!(of(0.000_029_4).starts_with("The window of 2 B was 29.4 us, too short"), "{}", of(0.000_029_4));
    }

    #[test]
    fn percentiles_that_equal_the_maximum_are_named() {
        for (samples, start) in [
            (9999, "p99.99 of 9999 samples equals the maximum"),
            (1000, "p99.99 of 1000 samples equals the maximum"),
            (999, "p99.9 and p99.99 of 999 samples equal the maximum"),
            (99, "p99, p99.9 and p99.99 of 99 samples equal the maximum"),
        ] {
            let hint = Hint::FewSamples(samples).to_string();
            assert!(hint.starts_with(start), "{hint}");
        }
    }

    #[test]
    fn options_in_texts_are_listed() {
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
