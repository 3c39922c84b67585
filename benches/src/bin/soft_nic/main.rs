//! What the software NIC costs in one process, beside a copy of memory on the same machine: each figure is the median of rounds
//! that are measured in turn.

mod lane;

use anyhow::{Result, ensure};
use clap::Parser;
use sideway_benches::measure;

use self::lane::{Home, Lane};

/// Measures the software NIC in one process, or the device that SIDEWAY_TEST_DEVICE names.
#[derive(Debug, Parser)]
struct Options {
    /// Rounds, of which the median counts
    #[arg(short = 'n', long, default_value_t = 15)]
    rounds: usize,
    /// Requests of a round
    #[arg(short, long, default_value_t = 20_000)]
    requests: usize,
    /// Queue pairs in the comparison of one with many
    #[arg(short, long, default_value_t = 1_000)]
    pairs: usize,
}

#[expect(clippy::print_stdout, reason = "the report")]
fn main() -> Result<()> {
    let Options { rounds, requests, pairs } = Options::parse();
    ensure!(rounds > 0 && requests > 0 && pairs > 0, "rounds, requests and pairs are one at least");
    let mut home = Home::new(1, 1 << 20);
    let mut lane = home.lane(0);
    println!("device {}, {rounds} rounds", home.device());

    let small = measure::median(rounds, || Ok(measure::each(requests, || home.write_and_poll(&mut lane, 64))))?;
    println!("64 B write, posted and polled: {small:.0} ns");
    let send = measure::median(rounds, || Ok(measure::each(requests, || home.send_and_poll(&mut lane, 64))))?;
    println!("64 B send, with its receive: {send:.0} ns");

    let large = (requests / 100).max(10);
    let (from, mut to) = (vec![1_u8; 1 << 20], vec![0_u8; 1 << 20]);
    let ratio = measure::median_ratio(
        rounds,
        || Ok(measure::each(large, || to.copy_from_slice(std::hint::black_box(&from)))),
        || Ok(measure::each(large, || home.write_and_poll(&mut lane, 1 << 20))),
    )?;
    println!("1 MiB writes: {ratio:.2} of the rate of a copy of as much");

    let mut shared = Home::new(pairs, 4096);
    let mut many: Vec<Lane> = (0..pairs).map(|place| shared.lane(place)).collect();
    let ratio = measure::median_ratio(
        rounds,
        || Ok(measure::each(requests, || home.write_and_poll(&mut lane, 64))),
        || Ok(measure::over(requests, &mut many, |lane| shared.write_and_poll(lane, 64))),
    )?;
    println!("64 B writes over {pairs} queue pairs in turn: {ratio:.2} of the rate over one");
    drop(many);
    drop(shared);

    let alone = |_| {
        let home = Home::new(1, 4096);
        (home.lane(0), home)
    };
    let mut many: Vec<(Lane, Home)> = (0..pairs).map(alone).collect();
    let ratio = measure::median_ratio(
        rounds,
        || Ok(measure::each(requests, || home.write_and_poll(&mut lane, 64))),
        || Ok(measure::over(requests, &mut many, |(lane, home)| home.write_and_poll(lane, 64))),
    )?;
    println!("the same, each with a context, domain, completion queues and memory of its own: {ratio:.2}");
    Ok(())
}
