//! Measures calls that 1 to 256 callers make, each with an attachment of N bytes and an answer of 13 bytes.
//!
//! ```console
//! $ cargo run --release -p trespass-rpc --example rpc-bench                      # both sides in this process, on one thread each
//! $ cargo run --release -p trespass-rpc --example rpc-bench -- --tcp --json
//! $ cargo run --release -p trespass-rpc --example rpc-bench -- --plot rpc.svg
//! $ cargo run --release -p trespass-rpc --example rpc-bench -- --server 0.0.0.0:7176
//! $ cargo run --release -p trespass-rpc --example rpc-bench -- --client HOST:7176 --size 1048576 --callers 1,16 --connections 16
//! ```
//!
//! By default the loop is closed: each caller has one call in flight. With `--rate N` the loop is open: the callers
//! together begin N calls per second, and the latency is measured from the scheduled start of a call. The CPU time and
//! the allocations are those of this process, which runs the client, the server or both.

mod plot;

use std::alloc::{GlobalAlloc, Layout, System};
use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use rustix::time::{ClockId, clock_gettime};
use trespass::Transport;
use trespass_rpc::{Attachment, Channel, Context, Endpoint, Memory, Options, Server, Serving};

/// The measured service.
#[trespass_rpc::service(name = "bench.Echo")]
pub trait Echo {
    /// Reads the attachment if it is not inline, and returns 13 bytes.
    async fn take(&self, cx: &Context, data: Attachment) -> Result<[u8; 13], ()>;
}

struct Bench;

impl Echo for Bench {
    async fn take(&self, _: &Context, data: Attachment) -> Result<[u8; 13], ()> {
        if data.len() > 8 << 10 {
            data.read().await.map_err(|_| ())?;
        }
        Ok(*b"hello, caller")
    }
}

/// Measures calls of trespass-rpc.
#[derive(Clone, Debug, Parser)]
struct Arguments {
    /// Run only the server, at this address
    #[arg(long)]
    server: Option<String>,
    /// Run only the client, for the server at this address
    #[arg(long)]
    client: Option<String>,
    /// Use TCP only
    #[arg(long)]
    tcp: bool,
    /// Length of the attachment in bytes
    #[arg(long, default_value_t = 128)]
    size: usize,
    /// Numbers of callers; each gets a row
    #[arg(long, value_delimiter = ',', default_value = "1,4,16,64,256")]
    callers: Vec<usize>,
    /// Number of connections that the callers share
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// Calls to begin per second (open loop)
    #[arg(long)]
    rate: Option<f64>,
    /// Duration of each row in seconds
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// How long the drivers poll RDMA before they sleep, in microseconds
    #[arg(long, default_value_t = Options::default().spin.as_micros() as u64)]
    spin: u64,
    /// Print one JSON object per row
    #[arg(long)]
    json: bool,
    /// Also write a plot of the rows to this SVG file
    #[arg(long)]
    plot: Option<PathBuf>,
}

/// Counts allocations.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: each method calls the system's allocator with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let mut options = Options::default();
    options.spin = Duration::from_micros(arguments.spin);
    if arguments.tcp {
        options.worker.transport = Transport::Tcp;
    }
    if let Some(address) = &arguments.server {
        return runtime()?.block_on(async {
            let serving = serve(&options, address).await?;
            writeln!(io::stdout(), "serving at {}", serving.local_addr())?;
            std::future::pending().await
        });
    }
    let address = match &arguments.client {
        Some(address) => address.clone(),
        None => in_thread(options.clone())?,
    };
    runtime()?.block_on(measure(&arguments, &options, &address))
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

async fn serve(options: &Options, address: &str) -> io::Result<Serving> {
    Server::new(EchoServer::new(Bench)).bind_on(&Endpoint::spawn(options)?, address).await
}

/// Starts a server on its own thread; returns its address.
fn in_thread(options: Options) -> Result<String, Box<dyn Error>> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let runtime = runtime()?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            let serving = serve(&options, "127.0.0.1:0").await?;
            // The receiver is waiting, so this cannot fail.
            _ = sender.send(serving.local_addr().to_string());
            std::future::pending::<io::Result<()>>().await
        })
    });
    Ok(receiver.recv()?)
}

async fn measure(arguments: &Arguments, options: &Options, address: &str) -> Result<(), Box<dyn Error>> {
    let endpoint = Endpoint::spawn(options)?;
    let mut clients = Vec::new();
    for _ in 0..arguments.connections.max(1) {
        clients.push(EchoClient::over(Channel::connect_on(&endpoint, address).await?)?);
    }
    let mut out = io::stdout();
    let transport = clients[0].transport().path.clone();
    if !arguments.json {
        writeln!(out, "{transport}; {} B, connections: {}", arguments.size, clients.len())?;
        writeln!(out, "callers      calls/s    Gb/s   p50 us   p90 us   p99 us  cpu us/call  allocs/call")?;
    }
    let memory = clients[0].channel().alloc(arguments.size.max(1))?;
    let mut points = Vec::new();
    for &callers in &arguments.callers {
        // Warms up until the pools and tables have reached their final size.
        run(&clients, callers, (&memory, arguments.size), Duration::from_millis(200), None).await?;
        let (cpu, allocations, begun) = (cpu(), ALLOCATIONS.load(Ordering::Relaxed), Instant::now());
        let time = Duration::from_secs_f64(arguments.seconds);
        let mut latencies = run(&clients, callers, (&memory, arguments.size), time, arguments.rate).await?;
        let elapsed = begun.elapsed().as_secs_f64();
        let count = latencies.len().max(1) as f64;
        let (cpu, allocations) = (self::cpu() - cpu, ALLOCATIONS.load(Ordering::Relaxed) - allocations);
        latencies.sort_unstable();
        let quantile = |part: f64| latencies.get((part * count) as usize).map_or(0.0, |nanos| f64::from(*nanos) / 1e3);
        let (rate, gbps) = (count / elapsed, count * arguments.size as f64 * 8.0 / elapsed / 1e9);
        let (p50, p90, p99) = (quantile(0.5), quantile(0.9), quantile(0.99));
        points.push(plot::Point { callers, rate, p50, p99 });
        let (cpu, allocations) = (cpu / count, allocations as f64 / count);
        if arguments.json {
            let row = serde_json::json!({
                "transport": transport, "size": arguments.size, "connections": clients.len(), "callers": callers,
                "rate": arguments.rate, "calls_per_s": rate, "gbps": gbps, "p50_us": p50, "p90_us": p90, "p99_us": p99,
                "cpu_us_per_call": cpu, "allocations_per_call": allocations,
            });
            writeln!(out, "{row}")?;
        } else {
            writeln!(
                out,
                "{callers:7} {rate:12.0} {gbps:7.2} {p50:8.1} {p90:8.1} {p99:8.1} {cpu:12.2} {allocations:12.3}"
            )?;
        }
    }
    if let Some(file) = &arguments.plot {
        let title = format!("{transport}; {} B, connections: {}", arguments.size, clients.len());
        std::fs::write(file, plot::svg(&title, &points))
            .map_err(|error| format!("cannot write {}: {error}; name a file that can be created", file.display()))?;
    }
    Ok(())
}

/// Makes calls for the given time, and returns the duration of each in nanoseconds.
async fn run(
    clients: &[EchoClient],
    callers: usize,
    (memory, size): (&Memory, usize),
    time: Duration,
    rate: Option<f64>,
) -> Result<Vec<u32>, Box<dyn Error>> {
    let begun = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|caller| {
            let (client, memory) = (clients[caller % clients.len()].clone(), memory.clone());
            tokio::spawn(async move {
                let mut latencies = Vec::with_capacity(1 << 20);
                let step = rate.map(|rate| Duration::from_secs_f64(callers as f64 / rate));
                let mut due = begun + step.unwrap_or_default() * caller as u32 / callers as u32;
                while begun.elapsed() < time {
                    let mut at = Instant::now();
                    if let Some(step) = step {
                        tokio::time::sleep_until(due.into()).await;
                        (at, due) = (due, due + step);
                    }
                    client.take(Attachment::of(&memory, 0..size)?).await.map_err(|error| format!("{error:?}"))?;
                    latencies.push(u32::try_from(at.elapsed().as_nanos()).unwrap_or(u32::MAX));
                }
                Ok::<_, Box<dyn Error + Send + Sync>>(latencies)
            })
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await?.map_err(|error| error.to_string())?);
    }
    Ok(all)
}

/// Returns the CPU time of this process, in microseconds.
fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}
