//! Completion events and asynchronous events in an async runtime: two queue pairs of one device send messages to and fro, each
//! side a future that sleeps until its completion queue has something, while a third prints what the device reports.
//!
//! The library knows of no runtime. A channel is a file descriptor in non-blocking mode, which any runtime can watch;
//! `sideway_examples::watched` is all that it takes.

mod arguments;
mod side;

use std::cell::RefCell;
use std::convert::Infallible;
use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use sideway::ibverbs::async_event::AsyncEventType;
use sideway_examples::watched::AsyncEvents;

use self::arguments::Arguments;
use self::side::{Side, connect};

fn main() -> ExitCode {
    sideway_examples::program(run)
}

fn run(arguments: Arguments, out: &mut dyn Write) -> Result<()> {
    // One thread runs all futures.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("the runtime does not start")?;
    runtime.block_on(ping(&arguments, &RefCell::new(out)))
}

async fn ping(arguments: &Arguments, out: &RefCell<&mut dyn Write>) -> Result<()> {
    let port = arguments.port_choice.open()?;
    let pd = port.context().alloc_pd()?;
    let mut sides = [Side::new(&port, &pd, arguments)?, Side::new(&port, &pd, arguments)?];
    connect(&sides, &port)?;
    let events = AsyncEvents::new(port.context().async_events()?)?;

    let [client, server] = &mut sides;
    let start = Instant::now();
    tokio::select! {
        // A device that fails ends the game.
        failure = watch(&events, out) => failure.map(|never| match never {})?,
        played = async { tokio::try_join!(client.play(true), server.play(false)) } => played.map(drop)?,
    }
    let seconds = start.elapsed().as_secs_f64();
    let iterations = arguments.iters;
    let each = seconds * 1e6 / f64::from(iterations);
    writeln!(out.borrow_mut(), "{iterations} iters in {seconds:.2} seconds = {each:.2} usec/iter")?;
    writeln!(
        out.borrow_mut(),
        "the client slept {} times and the server {} times until something completed",
        client.sleeps(),
        server.sleeps()
    )?;
    out.borrow_mut().flush()?;

    if let Some(time) = arguments.watch.0 {
        // Only an error ends this earlier.
        if let Ok(failure) = tokio::time::timeout(time, watch(&events, out)).await {
            failure.map(|never| match never {})?;
        }
    }
    Ok(())
}

/// Prints asynchronous events, until the device fails.
async fn watch(events: &AsyncEvents, out: &RefCell<&mut dyn Write>) -> Result<Infallible> {
    loop {
        let event = events.next().await?;
        writeln!(out.borrow_mut(), "{event}")?;
        out.borrow_mut().flush()?;
        if event.event_type() == AsyncEventType::DeviceFatal {
            bail!("the device has failed");
        }
    }
}
