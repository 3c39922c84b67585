//! Messages of 64 bytes to and fro, on several cores of each side at once. Prints the time of half a round trip.
//!
//! ```console
//! $ cargo run --release --example pingpong                  # in one terminal: the server; with a number: its cores
//! $ cargo run --release --example pingpong -- 127.0.0.1     # in another; with a number after the address: its cores
//! $ cargo run --release --example pingpong -- 127.0.0.1 1 tokio    # the client in a runtime of tokio
//! ```
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for the command line")]

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use canter::{Core, Error, Request};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

const PORT: u16 = 7474;
const SIZE: usize = 64;
const ROUNDS: u32 = 50_000;

/// A core on the device that `CANTER_DEVICE` names.
fn core() -> Result<Core, Error> {
    Core::builder(&std::env::var("CANTER_DEVICE").unwrap_or_else(|_| "soft0".to_owned())).build()
}

async fn answer(core: Core, request: Request) -> Result<(), Error> {
    let connection = core.accept(request, b"").await?;
    while let Some(message) = connection.recv().await? {
        connection.send(message.into_buf()).await?;
    }
    Ok(())
}

/// Serves a connection in a task.
fn attend(core: &Core, request: Request) {
    let served = answer(core.clone(), request);
    drop(core.spawn(async {
        if let Err(error) = served.await {
            eprintln!("pingpong: {error}");
        }
    }));
}

/// A further core of the server.
fn work(mut requests: UnboundedReceiver<Request>) -> Result<(), Error> {
    let core = core()?;
    core.run(async {
        while let Some(request) = requests.recv().await {
            attend(&core, request);
        }
        Ok(())
    })
}

/// Listens on one core, and gives the requests to all in turn.
fn serve(cores: u32) -> Result<(), Error> {
    let start = |_| {
        let (sender, requests) = unbounded_channel();
        thread::spawn(move || work(requests));
        sender
    };
    let others: Vec<_> = (1..cores).map(start).collect();
    let core = core()?;
    core.run(async {
        let mut listener = core.listen(SocketAddr::from(([0, 0, 0, 0], PORT)))?;
        println!("listening on {}, {cores} cores", listener.local_addr());
        let workers: Vec<_> = std::iter::once(None).chain(others.iter().map(Some)).collect();
        for worker in workers.iter().cycle() {
            let request = listener.accept().await?;
            match worker {
                None => attend(&core, request),
                Some(worker) if worker.send(request).is_ok() => {}
                Some(_) => eprintln!("pingpong: a core has ended"),
            }
        }
        Ok(())
    })
}

/// Returns the time of all rounds.
async fn talk(core: &Core, server: SocketAddr) -> Result<Duration, Error> {
    let (connection, pool) = (core.connect(server, b"").await?, core.pool(SIZE, 1)?);
    let mut buf = pool.get().await;
    let mut start = Instant::now();
    for round in 0..ROUNDS + ROUNDS / 10 {
        if round == ROUNDS / 10 {
            start = Instant::now();
        }
        let (sent, answer) = tokio::join!(connection.send(buf), connection.recv());
        buf = sent?;
        answer?.ok_or(Error::Closed)?;
    }
    Ok(start.elapsed())
}

/// A core of the client.
fn ask(server: SocketAddr, in_tokio: bool) -> Result<Duration, Error> {
    let core = core()?;
    if !in_tokio {
        return core.run(talk(&core, server));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Error::System(error.to_string().into()))?;
    let tasks = tokio::task::LocalSet::new();
    let driver = core.clone();
    tasks.spawn_local(async move { driver.drive().await });
    tasks.block_on(&runtime, talk(&core, server))
}

fn run(arguments: &[String]) -> Result<(), String> {
    let usage = |text: &str| format!("{text}: usage: pingpong [CORES] | pingpong ADDRESS [CORES [tokio]]");
    let number = |text: Option<&String>| match text {
        Some(text) => text.parse::<u32>().ok().filter(|&cores| cores > 0).ok_or_else(|| usage(text)),
        None => Ok(1),
    };
    let Some(Ok(address)) = arguments.first().map(|text| text.parse::<IpAddr>()) else {
        return serve(number(arguments.first())?).map_err(|error| error.to_string());
    };
    let in_tokio = match arguments.get(2).map(String::as_str) {
        None => false,
        Some("tokio") => true,
        Some(other) => return Err(usage(other)),
    };
    let cores = number(arguments.get(1))?;
    let threads: Vec<_> = (0..cores).map(|_| thread::spawn(move || ask((address, PORT).into(), in_tokio))).collect();
    for (number, thread) in threads.into_iter().enumerate() {
        let time = thread.join().map_err(|_| "a core panicked".to_owned())?.map_err(|error| error.to_string())?;
        println!("core {number}: {:.3} us one way", time.as_secs_f64() * 1e6 / f64::from(ROUNDS) / 2.0);
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pingpong: {error}");
            ExitCode::FAILURE
        }
    }
}
