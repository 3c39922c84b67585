//! Receives packets, drops them, and prints the rate.

mod support;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use self::support::{Counter, Link, Options, RIGHTS, Steering, entries, is_stopped, pin, run, work};

const ABOUT: &str = "\
Receives the packets of one queue, or of several, drops them, and prints the rate once a second.

A file (--config-file) lists several queues. A thread pinned to the given core serves each:
  - core: 1
    link_name: eth0
    link_channel: 0
  - core: 2
    link_name: eth0
    link_channel: 1";

/// Receive packets, drop them, and print the rate
#[derive(Clone, Debug, Parser)]
#[command(name = "rxdrop", long_about = ABOUT, after_help = RIGHTS, max_term_width = 110)]
struct Arguments {
    /// Network interface
    #[arg(long, value_name = "NAME", required_unless_present = "config_file")]
    link_name: Option<String>,

    /// Queue of the interface
    #[arg(long, value_name = "QUEUE", default_value_t = 0)]
    link_channel: u32,

    /// File that lists the queues, in place of --link-name
    #[arg(long, value_name = "FILE", conflicts_with = "link_name")]
    config_file: Option<PathBuf>,

    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    run(|| carry_out(&arguments))
}

fn carry_out(arguments: &Arguments) -> Result<()> {
    let options = &arguments.options;
    let mut links: Vec<(Option<u32>, Link)> = Vec::new();
    if let Some(name) = &arguments.link_name {
        links.push((None, Link { name: name.clone(), channel: arguments.link_channel }));
    }
    for entry in arguments.config_file.as_deref().map(entries).transpose()?.unwrap_or_default() {
        links.push((Some(entry.number("core")?), entry.link("link")?));
    }
    let counters: Vec<Counter> = links.iter().map(|_| Counter::default()).collect();
    let mut steering = Steering::default();
    let mut workers = Vec::new();
    for ((core, link), counter) in links.iter().zip(&counters) {
        let (umem, mut pool) = options.umem().build()?;
        let mut queue = options.socket(link, 1)?.open_rx(&umem)?;
        queue.fill.refill(&mut pool);
        steering.add(options, link, queue.rx.socket())?;
        workers.push(move || {
            core.map_or(Ok(()), pin)?;
            while !is_stopped() {
                let mut bytes = 0;
                let count = queue.rx.batch(options.batch()).recycle(&mut queue.fill, |packet| bytes += packet.len());
                counter.add(count, bytes);
                queue.fill.wake()?;
                if options.is_busy_polling() {
                    queue.rx.busy_poll()?;
                } else if count == 0 {
                    queue.rx.wait(support::IDLE)?;
                }
            }
            Ok(())
        });
    }
    let rows: Vec<_> = links.iter().map(|(_, link)| link.to_string()).zip(&counters).collect();
    work(workers, &rows)?;
    steering.report_losses()
}
