//! Several queue pairs change one counter in the memory of a peer, with fetch-and-add and compare-and-swap. The program
//! checks that no step is lost.
//!
//! The two programs exchange addresses like the ping-pongs, and numbers as hexadecimal digits followed by a zero byte:
//!
//! ```text
//! client                                    server
//!   number of its queue pairs     ───────►
//!   their addresses               ───────►    brings as many up
//!                                 ◄───────    their addresses
//!   brings its own up             ◄───────    address and key of the counter
//!   "done\0"                      ───────►
//!   changes the counter
//!   the sum of its additions      ───────►    compares the counter
//! ```

use std::io::Write;
use std::process::ExitCode;
use std::sync::Barrier;
use std::thread;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Parser;
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::{GenericCompletionQueue, WorkCompletionStatus as Status};
use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::device_context::{AtomicCapability, Mtu};
use sideway::ibverbs::memory_region::{OwnedMemoryRegion, RemoteKey};
use sideway::ibverbs::queue_pair::{
    BasicQueuePair, GenericQueuePair, PostSendGuard, QueuePair, QueuePairEndpoint, RcOptions, SetScatterGatherEntry,
};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway_examples::exchange::{DEFAULT_PORT, Peer};
use sideway_examples::options::parse_timeout;
use sideway_examples::{LocalPort, PortChoice, Timeout, wait_for_one};

const ABOUT: &str = "\
Several queue pairs change one counter in the memory of a peer concurrently, first with fetch-and-add, then with compare-and-swap. No \
step may be lost.

The counter is 8 bytes in the memory of the server, whose program only waits: its device executes the operations. The client uses each \
queue pair on its own thread. At the end both sides check that the counter is the sum of all additions.

With --loopback, one process is both sides.";

const EXAMPLES: &str = "\
Examples:
  rdma_atomic --loopback                           both sides in one process
  rdma_atomic                                      on the first machine: has the counter
  rdma_atomic -q 8 -n 10000 server.example.org     on the second: 8 queue pairs, 10000 steps each

Exit status: 0 if the sum is correct, 1 otherwise, 2 for invalid arguments.";

/// Maximum number of queue pairs of a client.
const MAX_QUEUE_PAIRS: u16 = 256;

/// Change a counter from several queue pairs with fetch-and-add and compare-and-swap
#[derive(Clone, Debug, Parser)]
#[command(name = "rdma_atomic", version, long_about = ABOUT, after_help = EXAMPLES, max_term_width = 110)]
struct Arguments {
    /// Host with the counter, as a name or an address; without it, this program is the server
    server: Option<String>,

    /// Run both sides in one process
    #[arg(long, conflicts_with_all = ["server", "port"])]
    loopback: bool,

    /// TCP port of the control connection
    #[arg(short, long, default_value_t = DEFAULT_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,

    #[command(flatten)]
    port_choice: PortChoice,

    /// Client: number of queue pairs that change the counter
    #[arg(short = 'q', long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_QUEUE_PAIRS)))]
    num_qp: u16,

    /// Client: steps of each queue pair, with each operation
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    iters: u32,

    /// Client: value that each step adds
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    add: u32,

    /// Limit of each wait for the peer; of the whole run for the server; 0 = no limit
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_timeout)]
    timeout: Timeout,
}

/// Every port supports this MTU, and the messages are shorter.
const MTU: Mtu = Mtu::Mtu256;
const LENGTH: u32 = size_of::<u64>() as u32;

fn main() -> ExitCode {
    sideway_examples::program(run)
}

fn run(arguments: Arguments, out: &mut dyn Write) -> Result<()> {
    let port = arguments.port_choice.open()?;
    let context = port.context();
    if context.query_device()?.atomic_cap() == AtomicCapability::None {
        bail!("{} does not support atomics; name another device with -d", context.name());
    }
    if let Some(note) = port.note() {
        writeln!(out, "{note}")?;
        out.flush()?;
    }
    match &arguments.server {
        _ if arguments.loopback => loopback(&arguments, &port, out),
        Some(server) => client(&arguments, server, &port, out),
        None => server(&arguments, &port, out),
    }
}

/// Runs both sides in one process; the device treats them like two processes.
fn loopback(arguments: &Arguments, port: &LocalPort, out: &mut dyn Write) -> Result<()> {
    let target = Target::new(port, arguments.num_qp)?;
    let mut workers = workers(arguments, port)?;
    target.connect(port, &addresses(&workers)?)?;
    connect(&workers, port, &target.addresses()?)?;
    let sum = change(arguments, &mut workers, target.counter(), out)?;
    target.compare("this process", sum, out)
}

/// Serves the counter.
fn server(arguments: &Arguments, port: &LocalPort, out: &mut dyn Write) -> Result<()> {
    let mut peer = Peer::accept(arguments.port, arguments.timeout)?;
    let [count] = receive::<5, 1>(&mut peer, "its number of queue pairs")?;
    let count = match u16::try_from(count) {
        Ok(count @ 1..=MAX_QUEUE_PAIRS) => count,
        _ => bail!("{} has {count} queue pairs; give it a --num-qp from 1 to {MAX_QUEUE_PAIRS}", peer.name()),
    };
    let remotes = (0..count).map(|_| peer.receive_address()).collect::<Result<Vec<_>>>()?;
    let target = Target::new(port, count)?;
    target.connect(port, &remotes)?;
    target.addresses()?.iter().try_for_each(|address| peer.send_address(address))?;
    let Counter { addr, rkey } = target.counter();
    peer.send(format!("{addr:016x}:{:08x}\0", rkey.raw()).as_bytes())?;
    peer.receive_done()?;
    writeln!(
        out,
        "{} accesses the counter with {}; its value is {}",
        peer.name(),
        queue_pairs(count),
        target.value()?
    )?;
    out.flush()?;

    let [sum] = receive::<17, 1>(&mut peer, "its sum of additions")?;
    target.compare(peer.name(), sum, out)
}

/// Changes the counter of a server.
fn client(arguments: &Arguments, server: &str, port: &LocalPort, out: &mut dyn Write) -> Result<()> {
    let mut peer = Peer::connect(server, arguments.port, arguments.timeout)?;
    let mut workers = workers(arguments, port)?;
    let locals = addresses(&workers)?;
    peer.send(format!("{:04x}\0", arguments.num_qp).as_bytes())?;
    locals.iter().try_for_each(|address| peer.send_address(address))?;
    let remotes = workers.iter().map(|_| peer.receive_address()).collect::<Result<Vec<_>>>()?;
    let [addr, rkey] = receive::<26, 2>(&mut peer, "the address of the counter")?;
    let rkey = RemoteKey::from_raw(u32::try_from(rkey).context("the key of the counter exceeds 32 bits")?);
    connect(&workers, port, &remotes)?;
    peer.send_done()?;
    let sum = change(arguments, &mut workers, Counter { addr, rkey }, out)?;
    peer.send(format!("{sum:016x}\0").as_bytes())
}

/// Receives a message of `LEN` bytes with `N` numbers.
fn receive<const LEN: usize, const N: usize>(peer: &mut Peer, what: &str) -> Result<[u64; N]> {
    let mut message = [0; LEN];
    peer.receive(&mut message, what)?;
    decode(&message).with_context(|| {
        let text = message.escape_ascii();
        format!("{} sent `{text}`, expected {what}; run rdma_atomic on both sides", peer.name())
    })
}

fn decode<const N: usize>(message: &[u8]) -> Option<[u64; N]> {
    let text = std::str::from_utf8(message).ok()?.strip_suffix('\0')?;
    let number = |field: &str| {
        // `from_str_radix` would accept a sign as well.
        let is_hex = !field.is_empty() && field.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hex.then(|| u64::from_str_radix(field, 16).ok()).flatten()
    };
    let numbers: Option<Vec<u64>> = text.split(':').map(number).collect();
    numbers?.try_into().ok()
}

/// The address and key of the counter in the memory of the server; the address is a multiple of 8.
#[derive(Clone, Copy, Debug)]
struct Counter {
    addr: u64,
    rkey: RemoteKey,
}

/// The server's side: a counter, and the queue pairs that give access to it.
#[derive(Debug)]
struct Target {
    // The queue pairs are dropped before the memory, which the peer accesses through them.
    qps: Vec<BasicQueuePair>,
    options: RcOptions,
    memory: OwnedMemoryRegion,
}

impl Target {
    /// Creates a counter with the value 0, and `count` queue pairs.
    fn new(port: &LocalPort, count: u16) -> Result<Self> {
        let pd = port.context().alloc_pd()?;
        // A region starts at a page boundary, and so at a multiple of 8, as atomic operations require.
        let memory = pd.reg_owned_mr(size_of::<u64>(), AccessFlags::LocalWrite | AccessFlags::RemoteAtomic)?;
        // The program posts no requests and gets no completions: the device responds by itself.
        let cq = port.context().create_cq_builder().setup_cqe(1).build()?;
        let mut builder = pd.create_qp_builder();
        builder.setup_max_send_wr(1).setup_max_recv_wr(1).setup_send_cq(&cq).setup_recv_cq(&cq);
        let qps = (0..count).map(|_| builder.build()).collect::<Result<_, _>>()?;
        Ok(Self { qps, options: port.options(AccessFlags::RemoteAtomic, MTU), memory })
    }

    fn addresses(&self) -> Result<Vec<QueuePairEndpoint>> {
        self.qps.iter().map(|qp| Ok(qp.local_endpoint(&self.options)?)).collect()
    }

    fn connect(&self, port: &LocalPort, remotes: &[QueuePairEndpoint]) -> Result<()> {
        ensure!(remotes.len() == self.qps.len(), "each queue pair has one peer");
        self.qps.iter().zip(remotes).try_for_each(|(qp, remote)| {
            port.check(remote)?;
            Ok(qp.connect_rc(remote, &self.options)?)
        })
    }

    fn counter(&self) -> Counter {
        Counter { addr: self.memory.addr(), rkey: self.memory.rkey() }
    }

    /// Returns the value. Call this after the peer has finished, because on some devices atomic operations are not
    /// atomic with respect to accesses by the processor.
    fn value(&self) -> Result<u64> {
        read_u64(&self.memory)
    }

    /// Compares the counter, which started at 0, with the sum of all additions.
    fn compare(&self, peer: &str, sum: u64, out: &mut dyn Write) -> Result<()> {
        let value = self.value()?;
        ensure!(value == sum, "{peer} added {sum} in total, but the counter is {value}");
        writeln!(out, "\n{peer} added {sum} in total, and the counter has this value")?;
        Ok(())
    }
}

fn read_u64(memory: &OwnedMemoryRegion) -> Result<u64> {
    let mut bytes = [0; size_of::<u64>()];
    memory.read_at(0, &mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// The client's side: a queue pair with its objects, for one thread.
#[derive(Debug)]
struct Worker {
    qp: GenericQueuePair,
    cq: GenericCompletionQueue,
    // The memory is dropped after the queue pair, whose requests use it: the device writes the previous value of the
    // counter there.
    found: OwnedMemoryRegion,
    options: RcOptions,
    timeout: Timeout,
}

impl Worker {
    fn new(port: &LocalPort, timeout: Timeout) -> Result<Self> {
        let pd = port.context().alloc_pd()?;
        let found = pd.reg_owned_mr(LENGTH as usize, AccessFlags::LocalWrite)?;
        let cq = port.context().create_cq_builder().setup_cqe(1).build_generic()?;
        let mut builder = pd.create_qp_builder();
        builder.setup_max_send_wr(1).setup_max_recv_wr(1).setup_send_cq(&cq).setup_recv_cq(&cq);
        let qp = builder.build_generic()?;
        // The peer has no access to this side.
        Ok(Self { qp, cq, found, options: port.options(AccessFlags::empty(), MTU), timeout })
    }

    /// Adds to the counter; returns its previous value.
    fn fetch_add(&mut self, Counter { addr, rkey }: Counter, add: u64) -> Result<u64> {
        let mut batch = self.qp.start_post_send();
        let request = batch.construct_wr(1, WorkRequestFlags::Signaled);
        lend(&self.found, request.setup_atomic_fetch_add(rkey, addr, add));
        batch.post()?;
        self.wait()
    }

    /// Sets the counter to `swap` if it is `compare`; returns its previous value.
    fn compare_swap(&mut self, Counter { addr, rkey }: Counter, compare: u64, swap: u64) -> Result<u64> {
        let mut batch = self.qp.start_post_send();
        let request = batch.construct_wr(1, WorkRequestFlags::Signaled);
        lend(&self.found, request.setup_atomic_compare_swap(rkey, addr, compare, swap));
        batch.post()?;
        self.wait()
    }

    fn wait(&mut self) -> Result<u64> {
        let status = wait_for_one(&mut self.cq, self.timeout, |completion| completion.status())?;
        let advice = match status {
            Status::Success => return read_u64(&self.found),
            Status::RetryCounterExceededError => {
                ": the server does not acknowledge; check that it still runs, and is reachable from this GID (-g)"
            }
            Status::RemoteInvalidRequestError => ": check that the server's device supports atomics",
            _ => "",
        };
        bail!("changing the counter failed: {status}{advice}")
    }
}

/// Adds the memory of a [`Worker`] to a request.
fn lend(found: &OwnedMemoryRegion, request: impl SetScatterGatherEntry) {
    // SAFETY: the memory is registered, has LENGTH bytes and is dropped after the queue pair. Only `Worker::wait` reads
    // it, after the completion. There is one request at a time, since the program ends after an error.
    unsafe { request.setup_sge(found.lkey(), found.addr(), LENGTH) }
}

fn workers(arguments: &Arguments, port: &LocalPort) -> Result<Vec<Worker>> {
    (0..arguments.num_qp).map(|_| Worker::new(port, arguments.timeout)).collect()
}

fn addresses(workers: &[Worker]) -> Result<Vec<QueuePairEndpoint>> {
    workers.iter().map(|worker| Ok(worker.qp.local_endpoint(&worker.options)?)).collect()
}

fn connect(workers: &[Worker], port: &LocalPort, remotes: &[QueuePairEndpoint]) -> Result<()> {
    workers.iter().zip(remotes).try_for_each(|(worker, remote)| {
        port.check(remote)?;
        Ok(worker.qp.connect_rc(remote, &worker.options)?)
    })
}

/// The steps of one queue pair.
#[derive(Clone, Debug)]
struct Steps {
    qp_num: u32,
    /// The value of the counter before each of its steps.
    found: Vec<u64>,
    /// Number of swaps that failed because another queue pair was faster.
    failed: u64,
}

/// Changes the counter with both operations, checks each step, and returns the sum of all additions.
fn change(arguments: &Arguments, workers: &mut [Worker], counter: Counter, out: &mut dyn Write) -> Result<u64> {
    let &Arguments { num_qp, iters, add, .. } = arguments;
    // All steps together do not exceed the 64 bits of the counter, so no value occurs twice.
    let (total, add) = (u64::from(num_qp) * u64::from(iters), u64::from(add));
    let start = value(workers, counter)?;
    let rkey = counter.rkey.raw();
    writeln!(out, "the counter: 8 bytes at {:#x} of the peer, key {rkey:#010x}; its value is {start}", counter.addr)?;

    writeln!(out, "\nfetch-and-add of {add}: {} concurrently, {iters} steps each", queue_pairs(num_qp))?;
    out.flush()?;
    let steps = concurrently(workers, |worker| {
        let found = (0..iters).map(|_| worker.fetch_add(counter, add)).collect::<Result<_>>()?;
        Ok((found, 0))
    })?;
    let between = report(&steps, workers, counter, (start, add, total), out)?;

    writeln!(out, "\ncompare-and-swap: the same additions; a swap fails if another was faster, and is retried")?;
    out.flush()?;
    let steps = concurrently(workers, |worker| {
        // The first expected value is a guess; a failed swap returns the current one.
        let mut expected = 0_u64;
        let mut found = Vec::with_capacity(iters as usize);
        let mut failed = 0;
        while found.len() < iters as usize {
            let next = expected.wrapping_add(add);
            let previous = worker.compare_swap(counter, expected, next)?;
            if previous == expected {
                found.push(previous);
                expected = next;
            } else {
                failed += 1;
                expected = previous;
            }
        }
        Ok((found, failed))
    })?;
    let end = report(&steps, workers, counter, (between, add, total), out)?;
    Ok(end.wrapping_sub(start))
}

/// Runs each worker in its own thread; all start together.
fn concurrently(
    workers: &mut [Worker],
    work: impl Fn(&mut Worker) -> Result<(Vec<u64>, u64)> + Sync,
) -> Result<Vec<Steps>> {
    let barrier = Barrier::new(workers.len());
    thread::scope(|scope| {
        let (barrier, work) = (&barrier, &work);
        let mut threads = Vec::new();
        for worker in workers {
            threads.push(scope.spawn(move || {
                barrier.wait();
                let (found, failed) = work(worker)?;
                Ok(Steps { qp_num: worker.qp.qp_number(), found, failed })
            }));
        }
        let join = |thread: thread::ScopedJoinHandle<'_, _>| thread.join().map_err(|_| anyhow!("a thread panicked"))?;
        threads.into_iter().map(join).collect()
    })
}

/// Prints a row for each queue pair, checks the steps and the counter, and returns its value.
fn report(
    steps: &[Steps],
    workers: &mut [Worker],
    counter: Counter,
    (start, add, total): (u64, u64, u64),
    out: &mut dyn Write,
) -> Result<u64> {
    let has_failed = steps.iter().any(|steps| steps.failed > 0);
    let title = if has_failed { "    failed" } else { "" };
    writeln!(out, "  queue pair  steps  first found  last found{title}")?;
    for Steps { qp_num, found, failed } in steps {
        let value = |value: Option<&u64>| value.map_or_else(|| "-".to_owned(), u64::to_string);
        let (first, last) = (value(found.first()), value(found.last()));
        let failed = if has_failed { format!("  {failed:>8}") } else { String::new() };
        writeln!(out, "  {qp_num:#08x}  {:>7}  {first:>11}  {last:>10}{failed}", found.len())?;
    }
    check(steps, start, add)?;
    let (value, expected) = (value(workers, counter)?, start.wrapping_add(total.wrapping_mul(add)));
    ensure!(value == expected, "the counter is {value}, but the sum of all steps is {expected}");
    writeln!(out, "  each of the {total} steps found a different value; the counter is {value}")?;
    Ok(value)
}

/// Checks that the steps, sorted by the value that they found, form a sequence from `start`: each step must find the
/// value at which the previous one ended.
fn check(steps: &[Steps], start: u64, add: u64) -> Result<()> {
    // The values are relative to the start, so that the counter may wrap.
    let mut found: Vec<u64> =
        steps.iter().flat_map(|steps| &steps.found).map(|value| value.wrapping_sub(start)).collect();
    found.sort_unstable();
    for (expected, &value) in (0_u64..).map(|number| number.wrapping_mul(add)).zip(&found) {
        ensure!(
            value == expected,
            "a step started at {} and none at {}: the operations were not atomic, or another program changed the counter",
            value.wrapping_add(start),
            expected.wrapping_add(start)
        );
    }
    Ok(())
}

/// The value of the counter: adding 0 is an atomic read.
fn value(workers: &mut [Worker], counter: Counter) -> Result<u64> {
    workers.first_mut().context("no queue pair exists")?.fetch_add(counter, 0)
}

fn queue_pairs(count: u16) -> String {
    format!("{count} queue pair{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(found: &[u64]) -> Steps {
        Steps { qp_num: 0x11, found: found.to_vec(), failed: 0 }
    }

    #[test]
    fn lost_steps_are_found_and_the_counter_may_wrap() {
        check(&[steps(&[5, 8]), steps(&[6, 7])], 5, 1).unwrap();
        check(&[steps(&[0, 30]), steps(&[10, 20])], 0, 10).unwrap();
        check(&[steps(&[u64::MAX - 1, 2]), steps(&[0])], u64::MAX - 1, 2).unwrap();
        check(&[steps(&[u64::MAX - 1, 0]), steps(&[1])], u64::MAX - 1, 2).unwrap_err();
        for (second, expected) in
            [(&[1, 2][..], "a step started at 1 and none at 2"), (&[3], "a step started at 3 and none at 2")]
        {
            let error = check(&[steps(&[0, 1]), steps(second)], 0, 1).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn numbers_of_messages_have_digits_alone() {
        assert_eq!(decode(b"00ff\0"), Some([255]));
        assert_eq!(decode(b"1:2\0"), Some([1, 2]));
        for wrong in [&b"00ff"[..], b"+0ff\0", b":\0", b"\0", b"1:2:3\0", b"12345678123456781\0", b"\xff\0"] {
            assert_eq!(decode::<2>(wrong), None, "{}", wrong.escape_ascii());
        }
    }
}
