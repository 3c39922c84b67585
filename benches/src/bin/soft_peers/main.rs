//! The cost of messages between two processes of a host, on softrnic and on other devices in the same run. This process
//! measures; a second process of this program is its peer, which polls.

mod peer;
mod side;

use std::cell::RefCell;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use sideway_benches::measure;

use self::peer::Peer;

/// Measures messages between two processes, on each device in turn
#[derive(Debug, Parser)]
struct Options {
    /// Devices, separated by commas
    #[arg(short, long, value_delimiter = ',', default_value = "soft0")]
    devices: Vec<String>,
    /// Rounds; the result is their median
    #[arg(short = 'n', long, default_value_t = 9)]
    rounds: usize,
    /// Messages per round
    #[arg(short, long, default_value_t = 10_000)]
    messages: usize,
    /// Run as the peer on this device; its commands come from standard input
    #[arg(long, hide = true)]
    peer: Option<String>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    match &options.peer {
        Some(device) => peer::serve(device),
        None => measure_all(&options),
    }
}

/// The results of one device.
struct Figures {
    /// Nanoseconds of a 64-byte send, one way.
    send: f64,
    /// Nanoseconds of a 64-byte write, from post to completion.
    write: f64,
    /// Bytes per nanosecond of 64 KiB and 1 MiB writes, sixteen in flight.
    middle: f64,
    large: f64,
}

#[expect(clippy::print_stdout, reason = "the report")]
fn measure_all(options: &Options) -> Result<()> {
    ensure!(options.rounds > 0 && options.messages >= 100, "--rounds must be at least 1, and --messages at least 100");
    let mut all = Vec::new();
    for device in &options.devices {
        let figures = measure_device(device, options).with_context(|| format!("on {device}"))?;
        println!("{device}:");
        println!("  64 B send, one way, half of a round trip: {:.0} ns", figures.send);
        println!("  64 B write, posted and polled: {:.0} ns", figures.write);
        println!("  64 KiB writes: {:.2} GB/s, 1 MiB writes: {:.2} GB/s", figures.middle, figures.large);
        all.push((device, figures));
    }
    if let Some(((first, ours), others)) = all.split_first() {
        for (device, theirs) in others {
            println!("{first} to {device}:");
            println!("  time of a 64 B send: {:.2}", ours.send / theirs.send);
            println!(
                "  bandwidth of 64 KiB writes: {:.1}, of 1 MiB writes: {:.1}",
                ours.middle / theirs.middle,
                ours.large / theirs.large
            );
        }
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the report")]
fn measure_device(device: &str, options: &Options) -> Result<Figures> {
    let Options { rounds, messages, .. } = *options;
    let mut peer = Peer::start(device)?;
    let send = measure::median(rounds, || peer.ping_pong(messages))?;
    let write = measure::median(rounds, || peer.small_writes(messages))?;
    let count = (messages / 50).max(20);
    let middle = measure::median(rounds, || peer.writes(count * 4, 64 << 10, 16))?;
    let large = measure::median(rounds, || peer.writes(count, 1 << 20, 16))?;
    let both = RefCell::new(&mut peer);
    match measure::median_ratio(
        rounds,
        || both.borrow_mut().copies(count, 1 << 20),
        || both.borrow_mut().writes(count, 1 << 20, 16),
    ) {
        Ok(ratio) => println!("{device}: 1 MiB writes: {ratio:.2} of the rate of process_vm_writev"),
        // The kernel may not permit the call.
        Err(error) => println!("{device}: no comparison with process_vm_writev: {error:#}"),
    }
    peer.stop()?;
    Ok(Figures { send, write, middle: f64::from(64 << 10) / middle, large: f64::from(1 << 20) / large })
}
