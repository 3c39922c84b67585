//! Sends packets at a given rate, or as fast as the link allows.

mod support;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser;
use xsk::{Pool, TxQueue};

use self::support::{Counter, OneLink, Options, is_stopped, run, stop, work};

const ABOUT: &str = "\
Sends Ethernet broadcasts of EtherType 0x88b5 (local experiments) as fast as the link accepts them, or at a rate, and prints the rate once a \
second. It attaches no XDP program, so --skb and --drv have no effect.";

const RIGHTS: &str = "\
Run as root, or with CAP_NET_RAW. An unprivileged user can run it in a user namespace (unshare -Urn) with a veth pair; --bufnum 2048 fits the \
usual limit of locked memory.

Exit status: 0 after Ctrl-C or --count packets, 1 on failure, 2 for invalid arguments.";

/// How long the program waits at the end for the completions of its packets.
const DRAIN: Duration = Duration::from_secs(2);

/// Send packets, and print the rate
#[derive(Clone, Debug, Parser)]
#[command(name = "txpush", long_about = ABOUT, after_help = RIGHTS, max_term_width = 110)]
struct Arguments {
    #[command(flatten)]
    link: OneLink,

    /// Packet size in bytes, with the Ethernet header, without FCS
    #[arg(long, value_name = "BYTES", default_value_t = 60, value_parser = clap::value_parser!(u16).range(14..))]
    packet_size: u16,

    /// Number of packets to send [default: until Ctrl-C]
    #[arg(long, value_name = "COUNT")]
    count: Option<u64>,

    /// Packets per second [default: no limit]
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u64).range(1..))]
    rate: Option<u64>,

    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    run(|| carry_out(&arguments))
}

fn carry_out(arguments: &Arguments) -> Result<()> {
    let (umem, mut pool) = arguments.options.umem().build()?;
    let size = umem.frame_size();
    ensure!(
        u32::from(arguments.packet_size) <= size,
        "packets of {} bytes exceed --bufsize {size}; change one of them",
        arguments.packet_size
    );
    let mut queue = arguments.options.socket(&arguments.link.link(), 1)?.open_tx(&umem)?;
    prepare(&mut pool, &packet(usize::from(arguments.packet_size)))?;
    let counter = Counter::default();
    let worker = || {
        let sent = push(arguments, &mut queue, &mut pool, &counter);
        stop();
        sent
    };
    work(vec![worker], &[(arguments.link.link_name.clone(), &counter)])
}

fn packet(size: usize) -> Vec<u8> {
    let mut packet = vec![0xff; 6];
    packet.extend([2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    packet.resize(size, 0);
    packet
}

/// Writes the packet into all frames, so that the loop only moves descriptors.
fn prepare(pool: &mut Pool, bytes: &[u8]) -> Result<()> {
    let mut frames = Vec::new();
    while let Some(mut frame) = pool.take() {
        frame.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        frames.push(frame);
    }
    for frame in frames {
        ensure!(pool.put(frame).is_ok(), "a frame of another UMEM");
    }
    Ok(())
}

/// Sends until the end of the run, then waits for the completions.
fn push(arguments: &Arguments, queue: &mut TxQueue, pool: &mut Pool, counter: &Counter) -> Result<()> {
    let (batch, len) = (arguments.options.batch(), usize::from(arguments.packet_size));
    let started = Instant::now();
    while !is_stopped() {
        let sent = counter.packets();
        let allowed = arguments.rate.map_or(u64::MAX, |rate| (started.elapsed().as_secs_f64() * rate as f64) as u64);
        let end = arguments.count.unwrap_or(u64::MAX);
        if sent >= end {
            break;
        }
        let count = (allowed.min(end).saturating_sub(sent)).min(batch as u64) as usize;
        if count == 0 {
            std::thread::sleep(Duration::from_micros(50));
            continue;
        }
        let mut moved = queue.completion.batch(count).send(&mut queue.tx, |_| (0, len));
        let mut tx = queue.tx.batch(count - moved);
        while tx.space() != 0 {
            let Some(Ok(packet)) = pool.take().map(|frame| frame.packet(0, len)) else { break };
            if tx.send(packet).is_err() {
                break;
            }
            moved += 1;
        }
        drop(tx);
        counter.add(moved, moved * len);
        queue.tx.wake()?;
    }
    let deadline = Instant::now() + DRAIN;
    while queue.tx.pending() != 0 && Instant::now() < deadline {
        queue.tx.wake()?;
        queue.completion.collect(pool);
    }
    Ok(())
}
