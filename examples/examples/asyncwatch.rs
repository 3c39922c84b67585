//! Prints the asynchronous events of devices, ports and GIDs: `ibv_asyncwatch` in Rust, for all devices at once.

use std::io::Write;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Parser;
use sideway::error::VerbError;
use sideway::ibverbs::async_event::{AsyncEvent, AsyncEventChannel};
use sideway::ibverbs::device::DeviceInfo;
use sideway_examples::options::parse_timeout;
use sideway_examples::{Timeout, device_list, devices, program};

/// Print asynchronous events of RDMA devices: ports, addresses, failures
///
/// Each event is one line: the device, the event, and the port. The program runs until it is interrupted, or until
/// --count or --timeout is reached.
///
/// Events of queue pairs and completion queues go to the program that created them, and are not shown here.
#[derive(Debug, Parser)]
#[command(
    after_help = "Examples:\n  asyncwatch\n  asyncwatch -d mlx5_0\n  asyncwatch -d mlx5_0 -d mlx5_1 --count 1 --timeout 60\n\n\
                  Exit status: 0 on success, 1 on failure or if fewer than --count events arrived, 2 for invalid arguments.",
    max_term_width = 100
)]
struct Arguments {
    /// Device, such as `mlx5_0`; repeatable [default: all devices]
    #[arg(short = 'd', long, value_name = "DEVICE")]
    ib_dev: Vec<String>,

    /// Exit after this number of events
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Exit after this time; 0 = no limit. With --count, too few events are a failure
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = parse_timeout)]
    timeout: Timeout,
}

/// The name of a device, and either an event of the device or the error that ended watching.
type Report = (String, Result<AsyncEvent, VerbError>);

fn main() -> ExitCode {
    program(run)
}

fn run(arguments: Arguments, out: &mut dyn Write) -> Result<()> {
    let (sender, receiver) = mpsc::channel();
    for name in watch(&arguments.ib_dev, &sender)? {
        writeln!(out, "{name}: watching")?;
    }
    out.flush()?;
    // Only the watchers keep senders, so the channel closes when the last watcher ends.
    drop(sender);

    let deadline = arguments.timeout.0.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut seen = 0;
    while arguments.count.is_none_or(|count| seen < count) {
        let report: Result<Report, RecvTimeoutError> = match deadline {
            Some(deadline) => receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())),
            None => receiver.recv().map_err(Into::into),
        };
        match (report, arguments.count) {
            (Ok((name, Ok(event))), _) => {
                writeln!(out, "{name}: {event}")?;
                seen += 1;
            }
            (Ok((name, Err(error))), _) => writeln!(out, "{name}: no longer watched: {error}")?,
            (Err(RecvTimeoutError::Disconnected), _) => bail!("no device is left to watch"),
            (Err(RecvTimeoutError::Timeout), None) => return Ok(()),
            (Err(RecvTimeoutError::Timeout), Some(count)) => {
                let seconds = arguments.timeout.0.unwrap_or_default().as_secs_f64();
                bail!("{seen} of {count} events arrived within {seconds} s; raise --timeout")
            }
        }
        // Flushes, so that each event is printed at once.
        out.flush()?;
    }
    Ok(())
}

/// Watches the devices of these names, or all devices; returns their names.
fn watch(asked: &[String], sender: &Sender<Report>) -> Result<Vec<String>> {
    let list = device_list()?;
    let mut chosen = Vec::new();
    for name in asked {
        chosen.extend(devices(&list, Some(name))?);
    }
    if asked.is_empty() {
        chosen = devices(&list, None)?;
    }
    let mut names = Vec::new();
    for device in chosen {
        let name = device.name();
        let events = device.open()?.async_events().with_context(|| name.clone())?;
        let (reporter, sender) = (name.clone(), sender.clone());
        thread::spawn(move || report(&reporter, &events, &sender));
        names.push(name);
    }
    Ok(names)
}

/// Forwards events until the device fails or the program ends.
fn report(name: &str, events: &AsyncEventChannel, sender: &Sender<Report>) {
    loop {
        let event = events.get_async_event(None);
        let is_last = event.is_err();
        if sender.send((name.to_owned(), event)).is_err() || is_last {
            return;
        }
    }
}
