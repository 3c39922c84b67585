//! The cost of the software NIC in one process, compared with a copy of memory: each result is the median of
//! alternating rounds.

mod connection;

use anyhow::{Result, ensure};
use clap::Parser;
use sideway_benches::measure;

use self::connection::{Connection, Resources};

/// Measures the software NIC in one process, or the device in SIDEWAY_TEST_DEVICE
#[derive(Debug, Parser)]
struct Options {
    /// Rounds; the result is their median
    #[arg(short = 'n', long, default_value_t = 15)]
    rounds: usize,
    /// Requests per round
    #[arg(short, long, default_value_t = 20_000)]
    requests: usize,
    /// Queue pairs in the comparison of one with many
    #[arg(short, long, default_value_t = 1_000)]
    pairs: usize,
}

#[expect(clippy::print_stdout, reason = "the report")]
fn main() -> Result<()> {
    let Options { rounds, requests, pairs } = Options::parse();
    ensure!(rounds > 0 && requests > 0 && pairs > 0, "--rounds, --requests and --pairs must be at least 1");
    let mut resources = Resources::new(1, 1 << 20);
    let mut connection = resources.connection(0);
    println!("device {}, {rounds} rounds", resources.device());

    let small =
        measure::median(rounds, || Ok(measure::each(requests, || resources.write_and_poll(&mut connection, 64))))?;
    println!("64 B write, posted and polled: {small:.0} ns");
    let send =
        measure::median(rounds, || Ok(measure::each(requests, || resources.send_and_poll(&mut connection, 64))))?;
    println!("64 B send, with its receive: {send:.0} ns");

    let large = (requests / 100).max(10);
    let (from, mut to) = (vec![1_u8; 1 << 20], vec![0_u8; 1 << 20]);
    let ratio = measure::median_ratio(
        rounds,
        || Ok(measure::each(large, || to.copy_from_slice(std::hint::black_box(&from)))),
        || Ok(measure::each(large, || resources.write_and_poll(&mut connection, 1 << 20))),
    )?;
    println!("1 MiB writes: {ratio:.2} of the rate of memcpy");

    let mut shared = Resources::new(pairs, 4096);
    let mut many: Vec<Connection> = (0..pairs).map(|index| shared.connection(index)).collect();
    let ratio = measure::median_ratio(
        rounds,
        || Ok(measure::each(requests, || resources.write_and_poll(&mut connection, 64))),
        || Ok(measure::over(requests, &mut many, |connection| shared.write_and_poll(connection, 64))),
    )?;
    println!("64 B writes over {pairs} queue pairs in turn: {ratio:.2} of the rate over one");
    drop(many);
    drop(shared);

    let alone = |_| {
        let resources = Resources::new(1, 4096);
        (resources.connection(0), resources)
    };
    let mut many: Vec<(Connection, Resources)> = (0..pairs).map(alone).collect();
    let ratio = measure::median_ratio(
        rounds,
        || Ok(measure::each(requests, || resources.write_and_poll(&mut connection, 64))),
        || Ok(measure::over(requests, &mut many, |(connection, resources)| resources.write_and_poll(connection, 64))),
    )?;
    println!("the same, each with its own context, domain, completion queues and memory: {ratio:.2}");
    Ok(())
}
