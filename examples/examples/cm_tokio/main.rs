//! Hundreds of connections by address in an async runtime: each is a task that reads as if it were alone.
//!
//! One task takes the events off the channel and hands each to the identifier that it is of (`router.rs`); the identifier keeps
//! where that is. What a connection does is in `talk.rs`. The library knows of no runtime.

mod arguments;
mod router;
mod talk;

use std::future::Future;
use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use sideway::rdmacm::communication_manager::EventChannel;
use sideway_examples::Timeout;
use sideway_examples::cm::{Crowd, Role};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use self::arguments::Arguments;
use self::router::{Socket, route};

fn main() -> ExitCode {
    sideway_examples::program(run)
}

fn run(arguments: Arguments, out: &mut dyn Write) -> Result<()> {
    softrnic::register()?;
    let role = arguments.crowd.role()?;
    // One thread runs all tasks.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("the runtime does not start")?;
    runtime.block_on(drive(&arguments.crowd, role, out))
}

async fn drive(crowd: &Crowd, role: Role, out: &mut dyn Write) -> Result<()> {
    let channel = EventChannel::new()?;
    let listener = role.listen.map(|address| Socket::listen(&channel, address)).transpose()?;
    if let Some(address) = listener.as_ref().and_then(|listener| listener.id().local_address()) {
        writeln!(out, "listening on {address}")?;
        out.flush()?;
    }
    let destination = role.destination(listener.as_ref().map(|listener| &**listener.id()));

    let start = Instant::now();
    let mut router = tokio::spawn(route(Arc::clone(&channel)));
    let stop = Notify::new();
    let made = async {
        let made = make(crowd, &channel, role.source, destination).await;
        // Of connections that could not be made here, the listener here does not hear.
        if !made.failures.is_empty() {
            stop.notify_one();
        }
        made
    };
    let served = serve(crowd, listener, &stop);
    let ended = tokio::select! {
        ended = within(crowd.timeout, "not all connections came to their end", async { tokio::join!(made, served) }) => ended,
        // Without events nothing comes to an end.
        failure = &mut router => return failure.context("the events")?.map(|never| match never {}),
    };
    // Whoever waited for its events has gone.
    router.abort();
    // It was told to end, and that is its result.
    let _ = router.await;
    // Every identifier holds the channel, and so does every queue pair that was made through one.
    let is_clean = Arc::into_inner(channel).is_some();

    let (made, served) = ended?;
    for (name, count) in [("made", made.count), ("served", served.count)] {
        if count > 0 {
            writeln!(out, "{count} connections {name}")?;
        }
    }
    writeln!(out, "{:.2} seconds", start.elapsed().as_secs_f64())?;
    out.flush()?;
    let failures: Vec<_> = made.failures.into_iter().chain(served.failures).collect();
    match failures.as_slice() {
        [] if is_clean => Ok(()),
        [] => bail!("everything has ended, and the event channel is still in use"),
        [first, ..] => bail!("{} connections failed, the first: {first}", failures.len()),
    }
}

/// What became of a side's connections.
#[derive(Debug, Default)]
struct Outcome {
    count: u32,
    failures: Vec<String>,
}

impl Outcome {
    /// Waits for all tasks.
    async fn of(mut tasks: JoinSet<Result<()>>) -> Self {
        let mut outcome = Self::default();
        while let Some(ended) = tasks.join_next().await {
            match ended {
                Ok(Ok(())) => outcome.count += 1,
                Ok(Err(error)) => outcome.failures.push(format!("{error:#}")),
                Err(error) => outcome.failures.push(error.to_string()),
            }
        }
        outcome
    }
}

/// Makes all connections, at once.
async fn make(
    crowd: &Crowd,
    channel: &Arc<EventChannel>,
    source: Option<SocketAddr>,
    destination: Option<SocketAddr>,
) -> Outcome {
    let mut tasks = JoinSet::new();
    if let Some(destination) = destination {
        for number in 0..crowd.connections {
            let (channel, timeout) = (Arc::clone(channel), crowd.timeout);
            let connected = talk::connect(channel, source, destination, crowd.size);
            tasks.spawn(async move {
                let connection = within(timeout, "it was not there", connected).await.and_then(|connected| connected);
                let connection = connection.with_context(|| format!("connection {number} to {destination}"))?;
                connection.ask(number).await.with_context(|| format!("connection {number}"))
            });
        }
    }
    Outcome::of(tasks).await
}

/// The accept loop: a task for each request, until there were enough or it is told to stop.
async fn serve(crowd: &Crowd, listener: Option<Socket>, stop: &Notify) -> Outcome {
    let mut tasks = JoinSet::new();
    let mut failure = None;
    if let Some(mut listener) = listener {
        for number in 0..crowd.connections {
            let request = tokio::select! {
                request = listener.accept() => request,
                () = stop.notified() => break,
            };
            let socket = match request {
                Ok(socket) => socket,
                Err(error) => {
                    failure = Some(format!("{error:#}"));
                    break;
                }
            };
            let size = crowd.size;
            tasks.spawn(async move {
                let connection = talk::accept(socket, size).await;
                let answered = async { connection?.answer().await };
                answered.await.with_context(|| format!("connection {number} of those served"))
            });
        }
        // Nobody listens any more: who asks from here on is told so at once.
    }
    let mut outcome = Outcome::of(tasks).await;
    outcome.failures.extend(failure);
    outcome
}

/// What `future` gives, if it does so in time.
async fn within<T>(timeout: Timeout, what: &str, future: impl Future<Output = T>) -> Result<T> {
    let Some(time) = timeout.0 else { return Ok(future.await) };
    match tokio::time::timeout(time, future).await {
        Ok(result) => Ok(result),
        Err(_elapsed) => bail!("{what} within {} s (--timeout)", time.as_secs_f64()),
    }
}
