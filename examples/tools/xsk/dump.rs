//! Prints a line for each packet that arrives.

mod support;

use std::fmt::Write as _;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use self::support::{OneLink, Options, RIGHTS, Steering, is_stopped, run};

const ABOUT: &str = "\
Prints a line for each packet of a queue. Unlike tcpdump, it takes the packets: the kernel's network stack does not receive them.";

/// Print a line for each packet of a queue
#[derive(Clone, Debug, Parser)]
#[command(name = "dump", long_about = ABOUT, after_help = RIGHTS, max_term_width = 110)]
struct Arguments {
    #[command(flatten)]
    link: OneLink,

    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    run(|| carry_out(&arguments))
}

fn carry_out(arguments: &Arguments) -> Result<()> {
    let (options, link) = (&arguments.options, arguments.link.link());
    let (umem, mut pool) = options.umem().build()?;
    let mut queue = options.socket(&link, 1)?.open_rx(&umem)?;
    queue.fill.refill(&mut pool);
    let mut steering = Steering::default();
    steering.add(options, &link, queue.rx.socket())?;
    let mut out = io::stdout().lock();
    let mut text = String::new();
    while !is_stopped() {
        queue.rx.wait(support::IDLE)?;
        text.clear();
        queue.rx.batch(options.batch()).recycle(&mut queue.fill, |packet| describe(packet.bytes(), &mut text));
        queue.fill.wake()?;
        out.write_all(text.as_bytes())?;
        out.flush()?;
    }
    steering.report_losses()
}

/// Adds a line: addresses, protocol and length.
fn describe(bytes: &[u8], text: &mut String) {
    // Writing to a text cannot fail.
    let _ = line(bytes, text);
    text.push('\n');
}

fn line(bytes: &[u8], text: &mut String) -> std::fmt::Result {
    let Some((header, payload)) = bytes.split_first_chunk::<14>() else {
        return write!(text, "{} bytes: too short for Ethernet", bytes.len());
    };
    let address = |at: usize| header[at..at + 6].iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":");
    let kind = u16::from_be_bytes([header[12], header[13]]);
    write!(text, "{} > {}, type {kind:#06x}, {} bytes", address(6), address(0), bytes.len())?;
    match (kind, payload) {
        (0x0800, [first, ..]) if payload.len() >= 20 => {
            let part = |at: usize| -> [u8; 4] { std::array::from_fn(|byte| payload[at + byte]) };
            let (source, destination) = (Ipv4Addr::from(part(12)), Ipv4Addr::from(part(16)));
            let ports = ports(payload[9], payload.get(usize::from(first & 15) * 4..));
            write!(text, ": {source} > {destination}, protocol {}{ports}", payload[9])
        }
        (0x86dd, _) if payload.len() >= 40 => {
            let part = |at: usize| -> [u8; 16] { std::array::from_fn(|byte| payload[at + byte]) };
            let (source, destination) = (Ipv6Addr::from(part(8)), Ipv6Addr::from(part(24)));
            write!(text, ": {source} > {destination}, protocol {}{}", payload[6], ports(payload[6], payload.get(40..)))
        }
        _ => Ok(()),
    }
}

/// The ports of TCP and UDP.
fn ports(protocol: u8, segment: Option<&[u8]>) -> String {
    match segment {
        Some([a, b, c, d, ..]) if [6, 17].contains(&protocol) => {
            format!(", port {} > {}", u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]))
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::{describe, is_stopped, run};

    #[test]
    fn second_signal_does_not_prevent_the_report() {
        let mut has_reported = false;
        let status = run(|| {
            for _ in 0..2 {
                // SAFETY: the function has no conditions. `run` has installed the handler.
                unsafe { libc::raise(libc::SIGINT) };
            }
            assert!(is_stopped());
            has_reported = true;
            Ok(())
        });
        assert!(has_reported && status == std::process::ExitCode::SUCCESS);
    }

    #[test]
    fn udp_packet_prints_addresses_and_ports() {
        let mut packet = vec![0xff; 6];
        packet.extend([2, 0, 0, 0, 0, 1, 8, 0]);
        packet.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
        packet.extend([0x12, 0xb7, 0, 53, 0, 8, 0, 0]);
        let mut text = String::new();
        describe(&packet, &mut text);
        let expected = "02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff, type 0x0800, 42 bytes: 192.0.2.1 > 192.0.2.2, protocol 17, port 4791 > 53\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn packets_of_any_length_print() {
        let packet: Vec<u8> = [2; 12].into_iter().chain([8, 0, 0x4f]).chain([17; 60]).collect();
        for len in 0..packet.len() {
            let mut text = String::new();
            describe(&packet[..len], &mut text);
            assert!(text.ends_with('\n'));
        }
    }
}
