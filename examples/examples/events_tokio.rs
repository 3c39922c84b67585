//! Receives completion events and asynchronous events in an async runtime. Two queue pairs of one device exchange
//! messages; each side is a future that sleeps until its completion queue has an entry. A third future prints the
//! device's events.

mod watched;

use std::cell::RefCell;
use std::convert::Infallible;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Parser;
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::async_event::{AsyncEventChannel, AsyncEventType};
use sideway::ibverbs::completion::{CompletionChannel, CompletionQueue, GenericCompletionQueue, WorkCompletionStatus};
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{GenericQueuePair, PostSendGuard, QueuePair, QueuePairEndpoint, RcOptions};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway_examples::options::{parse_message_size, parse_timeout};
use sideway_examples::{Buffer, LocalPort, PortChoice, Slots, Timeout};

use self::watched::Watched;

const ABOUT: &str = "\
Sends messages back and forth between two queue pairs of one device, in one program and on one thread: each side is a future of the \
tokio runtime that sleeps until a completion event. Events of the device (a port goes down, an address changes) are printed as they \
arrive.";

const EXAMPLES: &str = "\
Examples:
  events_tokio
  events_tokio -d mlx5_0 -g 3 -s 64k -n 10000
  events_tokio --watch 60        then run `ip link set eth0 down` in another shell

Exit status: 0 if all messages were exchanged, 1 on failure, 2 for invalid arguments.";

/// Send messages back and forth in an async runtime, driven by completion events
#[derive(Clone, Debug, Parser)]
#[command(name = "events_tokio", long_about = ABOUT, after_help = EXAMPLES, max_term_width = 110)]
struct Arguments {
    #[command(flatten)]
    port_choice: PortChoice,

    /// Bytes in a message; k, M and G are powers of 1024
    #[arg(short, long, value_name = "SIZE", default_value = "4096", value_parser = parse_message_size)]
    size: u32,

    /// Messages in either direction
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    iters: u32,

    /// Limit of each wait for a completion; 0 = no limit
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_timeout)]
    timeout: Timeout,

    /// Print events of the device for this long after the last message
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = parse_timeout)]
    watch: Timeout,
}

fn main() -> ExitCode {
    sideway_examples::program(run)
}

fn run(arguments: Arguments, out: &mut dyn Write) -> Result<()> {
    // One thread runs all futures.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    runtime.block_on(exchange(&arguments, &RefCell::new(out)))
}

async fn exchange(arguments: &Arguments, out: &RefCell<&mut dyn Write>) -> Result<()> {
    let port = arguments.port_choice.open()?;
    let pd = port.context().alloc_pd()?;
    let (mut client, mut server) = (Side::new(&port, &pd, arguments)?, Side::new(&port, &pd, arguments)?);
    client.connect(&server.qp.local_endpoint(&server.options)?)?;
    server.connect(&client.qp.local_endpoint(&client.options)?)?;
    let events = Watched::new(port.context().async_events()?)?;

    let start = Instant::now();
    tokio::select! {
        // A device that fails ends the run.
        failure = print_events(&events, out) => failure.map(|never| match never {})?,
        done = async { tokio::try_join!(client.run(true), server.run(false)) } => done.map(drop)?,
    }
    let seconds = start.elapsed().as_secs_f64();
    let iterations = arguments.iters;
    let each = seconds * 1e6 / f64::from(iterations);
    writeln!(
        out.borrow_mut(),
        "{iterations} iters in {seconds:.2} seconds = {each:.2} usec/iter\n\
         the client slept {} times and the server {} times until a completion",
        client.sleeps,
        server.sleeps
    )?;
    out.borrow_mut().flush()?;

    if let Some(time) = arguments.watch.0 {
        // Only an error ends this wait before the time has passed.
        if let Ok(failure) = tokio::time::timeout(time, print_events(&events, out)).await {
            failure.map(|never| match never {})?;
        }
    }
    Ok(())
}

/// Prints asynchronous events, until the device fails.
async fn print_events(events: &Watched<AsyncEventChannel>, out: &RefCell<&mut dyn Write>) -> Result<Infallible> {
    loop {
        let event = events.next().await?;
        writeln!(out.borrow_mut(), "{event}")?;
        out.borrow_mut().flush()?;
        if event.event_type() == AsyncEventType::DeviceFatal {
            bail!("the device has failed; see `dmesg`");
        }
    }
}

/// The work request identifiers.
const RECEIVE: u64 = 1;
const SEND: u64 = 2;
/// Number of posted receives: one is posted again while the other receives the next message.
const RECEIVES: u32 = 2;

/// A queue pair, its completion queue and its memory.
#[derive(Debug)]
struct Side {
    // The queue pair is dropped before the memory that its requests use.
    qp: GenericQueuePair,
    cq: GenericCompletionQueue,
    events: Watched<Arc<CompletionChannel>>,
    outgoing: Slots,
    incoming: Slots,
    options: RcOptions,
    iterations: u32,
    timeout: Timeout,
    sent: u32,
    received: u32,
    sleeps: u32,
}

impl Side {
    /// Creates all objects.
    fn new(port: &LocalPort, pd: &Arc<ProtectionDomain>, arguments: &Arguments) -> Result<Self> {
        let context = pd.device_context();
        let outgoing = Slots::new(pd, arguments.size, 1, AccessFlags::empty())?;
        let incoming = Slots::new(pd, arguments.size, 1, AccessFlags::LocalWrite)?;
        let channel = context.create_comp_channel()?;
        let cq = context.create_cq_builder().setup_cqe(RECEIVES + 1).setup_comp_channel(&channel, 0).build_generic()?;
        let qp = pd
            .create_qp_builder()
            .setup_max_send_wr(1)
            .setup_max_recv_wr(RECEIVES)
            .setup_send_cq(&cq)
            .setup_recv_cq(&cq)
            .build_generic()?;
        Ok(Self {
            // The peer only sends; it neither writes nor reads memory of this side.
            options: port.options(AccessFlags::empty(), port.attr().active_mtu()),
            qp,
            cq,
            events: Watched::new(channel)?,
            outgoing,
            incoming,
            iterations: arguments.iters,
            timeout: arguments.timeout,
            sent: 0,
            received: 0,
            sleeps: 0,
        })
    }

    /// Connects, and posts the receives.
    fn connect(&mut self, remote: &QueuePairEndpoint) -> Result<()> {
        self.qp.connect_rc(remote, &self.options)?;
        (0..RECEIVES).try_for_each(|_| self.post_receive())
    }

    /// Sends all messages and receives as many; the client sends first.
    async fn run(&mut self, is_client: bool) -> Result<()> {
        for round in 1..=self.iterations {
            if is_client {
                self.send(round).await?;
            }
            while self.received < round {
                self.complete().await?;
            }
            if !is_client {
                self.send(round).await?;
            }
        }
        Ok(())
    }

    /// Sends a message and waits for its completion.
    async fn send(&mut self, number: u32) -> Result<()> {
        self.outgoing.write(0, &[number as u8])?;
        let Buffer { lkey, addr, length } = self.outgoing.buffer(0);
        let mut batch = self.qp.start_post_send();
        let request = batch.construct_wr(SEND, WorkRequestFlags::Signaled).setup_send();
        // SAFETY: the memory is registered and has `length` bytes. Its field is declared after the queue pair, so the
        // memory is dropped after the queue pair, even if this future is dropped. Only this code writes the memory, and
        // the last send has completed.
        unsafe { request.setup_sge(lkey, addr, length) };
        batch.post()?;
        while self.sent < number {
            self.complete().await?;
        }
        Ok(())
    }

    fn post_receive(&mut self) -> Result<()> {
        let Buffer { lkey, addr, length } = self.incoming.buffer(0);
        let mut batch = self.qp.start_post_recv();
        // SAFETY: the memory is registered, has `length` bytes, and is dropped after the queue pair. The program copies
        // from it and keeps no reference into it.
        unsafe { batch.construct_wr(RECEIVE).setup_sge(lkey, addr, length) };
        Ok(batch.post()?)
    }

    /// Sleeps until a request completes, and polls its completion.
    async fn complete(&mut self) -> Result<()> {
        while !self.poll()? {
            self.cq.req_notify(false)?;
            // A completion before the request raises no event.
            if self.poll()? {
                return Ok(());
            }
            // Other futures run during this wait. An event of a completion that was already polled is harmless: the
            // next sleep ends immediately.
            match self.timeout.0 {
                None => drop(self.events.next().await?),
                Some(time) => match tokio::time::timeout(time, self.events.next()).await {
                    Ok(event) => drop(event?),
                    Err(_elapsed) => bail!(
                        "nothing completed for {} s; check that the port is up, or raise --timeout",
                        time.as_secs_f64()
                    ),
                },
            }
            self.sleeps += 1;
        }
        Ok(())
    }

    /// Polls all completions; returns whether there was one.
    fn poll(&mut self) -> Result<bool> {
        let (mut arrived, sent) = (0, &mut self.sent);
        let count = self.cq.poll_each(u32::MAX, |completion| {
            let is_send = completion.wr_id() == SEND;
            if completion.status() != WorkCompletionStatus::Success {
                bail!("{} failed: {}", if is_send { "sending" } else { "receiving" }, completion.status());
            }
            *if is_send { &mut *sent } else { &mut arrived } += 1;
            Ok(())
        })?;
        for _ in 0..arrived {
            self.received += 1;
            let mut first = [0];
            self.incoming.read(0, 0, &mut first)?;
            if first != [self.received as u8] {
                bail!("message {} starts with byte {} of another message", self.received, first[0]);
            }
            self.post_receive()?;
        }
        Ok(count > 0)
    }
}
