//! Counts the instructions, allocations and system calls of trespass for a small message, on softrnic in one process. A loop
//! with sideway alone shows how many of the instructions are not those of trespass. `COST_FUNCTIONS=1` divides the
//! instructions among the functions. Under valgrind, a long message takes over a millisecond, so the count of system calls
//! is too high: the worker polls its descriptors once per millisecond.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::process::ExitCode;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, ValueEnum};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::{GenericCompletionQueue, WorkCompletionStatus};
use sideway::ibverbs::memory_region::OwnedMemoryRegion;
use sideway::ibverbs::queue_pair::{
    Connected, GenericQueuePair, GenericSendQueue, PostSendGuard, QueuePair, SendQueue, WorkRequestFlags,
};
use sideway_test_names::Folder;
use sideway_tests::{device, loopback};
use sideway_zero_cost::allocations;
use sideway_zero_cost::callgrind::{Loop, exit, measure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;
use trespass::{ConnectionId, Handle, Kind, Options, Transport, Worker};

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

/// Count the instructions and system calls of a 64 B message of trespass, both ends together
///
/// Fails if a loop exceeds its limit, or allocates.
#[derive(Debug, Parser)]
#[command(name = "trespass_cost", version, max_term_width = 110)]
struct Arguments {
    /// Loop to run, instead of measuring all
    #[arg(value_enum, requires = "rounds")]
    task: Option<Task>,
    /// Number of rounds
    rounds: Option<u64>,
}

/// Rounds of futures between two turns of the tasks that drive the workers.
const AWAY: u64 = 10;
/// Rounds of futures before those that are counted.
const WARM_UP: u64 = 2000;
/// Length of a message that the receiver reads from the sender's memory.
const LONG: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Task {
    /// One message, copied into the program's memory by `try_read`
    Read,
    /// One message, received as a buffer
    Recv,
    /// 16 messages, sent in one turn
    Batch,
    /// One message of 64 KiB, which the receiver reads from the sender's memory
    Long,
    /// A turn without work
    Idle,
    /// One message, written to and read from a `Stream` of tokio
    AsyncRead,
    /// One message, received as a buffer by a future
    AsyncRecv,
    /// The SEND of one message and its receive, with sideway alone
    Sideway,
}

impl Task {
    /// Messages of a round.
    fn messages(self) -> u64 {
        if self == Self::Batch { 16 } else { 1 }
    }

    /// The length of a message.
    fn length(self) -> usize {
        if self == Self::Long { LONG } else { 64 }
    }
}

impl Loop for Task {
    /// A round has messages in both directions.
    fn count(self) -> u64 {
        2 * self.messages()
    }

    /// For both ends together, including this loop.
    fn limit(self) -> f64 {
        match self {
            Self::Read => 615.0,
            Self::Recv => 815.0,
            Self::Batch => 690.0,
            Self::Long => 6060.0,
            Self::Idle => 88.0,
            Self::AsyncRead => 2800.0,
            Self::AsyncRecv => 1870.0,
            Self::Sideway => 150.0,
        }
    }
}

fn main() -> ExitCode {
    exit(carry_out(&Arguments::parse()))
}

/// Runs one loop, or measures all; `false` if a limit is exceeded.
fn carry_out(arguments: &Arguments) -> Result<bool> {
    if let (Some(task), Some(rounds)) = (arguments.task, arguments.rounds) {
        if task == Task::Sideway {
            let mut ends = BareEnds::new()?;
            ends.run(300)?;
            allocations::none_in(|| ends.run(rounds))?;
            return Ok(true);
        }
        if matches!(task, Task::AsyncRead | Task::AsyncRecv) {
            AsyncEnds::new(task)?.exchange(rounds)?;
            return Ok(true);
        }
        let mut ends = Ends::new()?;
        // The first rounds allocate memory. Those of 16 messages also raise the leases of credits to their maximum.
        ends.run(Task::Batch, 300)?;
        ends.run(task, 300)?;
        match task {
            // softrnic allocates for each bound window.
            Task::Long => ends.run(task, rounds)?,
            _ => allocations::none_in(|| ends.run(task, rounds))?,
        }
        return Ok(true);
    }
    let mut out = io::stdout();
    measure::<Task>("a message", Folder::new().path(), &mut out)
}

/// Two workers of one thread, and a connection between them.
struct Ends([End; 2]);

struct End {
    worker: Worker,
    connection: ConnectionId,
}

impl Ends {
    fn new() -> Result<Ends> {
        softrnic::register().map_err(|error| anyhow::anyhow!("{error}"))?;
        let mut options = Options::default();
        options.transport = Transport::Rdma;
        options.memory = 64 << 20;
        let (mut client, mut server) = (Worker::new(&options)?, Worker::new(&options)?);
        let listener = server.listen(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let address = server.local_addr(listener).context("the listener has no address")?;
        let connection = client.connect(Kind::Rdma, address)?;
        loop {
            client.poll();
            server.poll();
            if client.is_established(connection)?
                && let Some(other) = server.accept(listener)
            {
                let ends = [End { worker: client, connection }, End { worker: server, connection: other }];
                return Ok(Ends(ends));
            }
            client.wait(Duration::from_millis(1))?;
        }
    }

    #[inline(never)]
    fn run(&mut self, task: Task, rounds: u64) -> Result<()> {
        let [client, server] = &mut self.0;
        for _ in 0..rounds {
            match task {
                Task::Read => read(client, server).and_then(|()| read(server, client))?,
                _ => round(task, client, server).and_then(|()| round(task, server, client))?,
            }
        }
        Ok(())
    }
}

/// One message from one end to the other, which `try_read` copies into memory of the program.
#[inline(never)]
fn read(from: &mut End, to: &mut End) -> Result<()> {
    from.worker.try_send(from.connection, &[7; 64])?;
    from.worker.poll();
    to.worker.poll();
    let mut bytes = [0; 64];
    while let Err(error) = to.worker.try_read(to.connection, &mut bytes) {
        if error.kind() != io::ErrorKind::WouldBlock {
            return Err(error.into());
        }
        from.worker.poll();
        to.worker.poll();
    }
    ensure!(bytes[63] == 7, "wrong bytes");
    Ok(())
}

/// Messages from one end to the other.
#[inline(never)]
fn round(task: Task, from: &mut End, to: &mut End) -> Result<()> {
    match task {
        Task::Idle => {
            from.worker.poll();
            return Ok(());
        }
        Task::Long => {
            let buffer = from.worker.alloc(from.connection, LONG);
            from.worker.try_send_buf(from.connection, buffer).map_err(|(error, _)| error)?;
        }
        _ => {
            for _ in 0..task.messages() {
                from.worker.try_send(from.connection, &[7; 64])?;
            }
        }
    }
    from.worker.poll();
    to.worker.poll();
    for _ in 0..task.messages() {
        let mut bytes = [0; 64];
        loop {
            match to.worker.try_recv(to.connection) {
                Ok(message) => {
                    bytes.copy_from_slice(&message[..64]);
                    break ensure!(message.len() == task.length(), "a part arrived");
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
            from.worker.poll();
            to.worker.poll();
        }
        ensure!(task == Task::Long || bytes[63] == 7, "wrong bytes");
    }
    Ok(())
}

/// Two workers that the tasks of one runtime drive, and a connection between them.
struct AsyncEnds {
    runtime: Runtime,
    channels: [Channel; 2],
}

/// An end of a connection.
enum Channel {
    Stream(trespass::tokio::Stream),
    Connection(trespass::tokio::Connection),
}

impl AsyncEnds {
    fn new(task: Task) -> Result<AsyncEnds> {
        softrnic::register().map_err(|error| anyhow::anyhow!("{error}"))?;
        let mut options = Options::default();
        options.transport = Transport::Rdma;
        options.memory = 64 << 20;
        // Without sleeps, whose number depends on the time.
        options.spin = Duration::from_secs(3600);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut channels = runtime.block_on(connect(task, &options))?;
        // The workers' own threads leave the workers to the tasks. This is not counted.
        runtime.block_on(async {
            for _ in 0..WARM_UP / AWAY {
                exchange(&mut channels).await?;
                tokio::task::yield_now().await;
            }
            anyhow::Ok(())
        })?;
        Ok(AsyncEnds { runtime, channels })
    }

    fn exchange(&mut self, rounds: u64) -> Result<()> {
        let Self { runtime, channels } = self;
        runtime.block_on(async {
            for _ in 0..rounds.div_ceil(AWAY) {
                let mut messages = pin!(exchange(channels));
                poll_fn(|context| Self::run(messages.as_mut(), context)).await?;
                // The tasks that drive the workers run here. Else the workers' own threads do it.
                tokio::task::yield_now().await;
            }
            Ok(())
        })
    }

    /// Polls a future; what the tasks of the runtime do is not counted.
    #[inline(never)]
    fn run<F: Future>(future: Pin<&mut F>, context: &mut Context<'_>) -> Poll<F::Output> {
        future.poll(context)
    }
}

/// Connects two workers.
async fn connect(task: Task, options: &Options) -> Result<[Channel; 2]> {
    let (client, server) = (Handle::new(options)?, Handle::new(options)?);
    let address = "127.0.0.1:0";
    if task == Task::AsyncRead {
        let listener = trespass::tokio::Listener::bind_on(&server, address).await?;
        let address = listener.local_addr()?;
        let (here, there) = tokio::join!(trespass::tokio::Stream::connect_on(&client, address), listener.accept());
        return Ok([Channel::Stream(here?), Channel::Stream(there?.0)]);
    }
    let acceptor = trespass::tokio::Acceptor::bind_on(&server, address).await?;
    let address = acceptor.local_addr();
    let connecting = trespass::tokio::Connection::connect_on(&client, address, None);
    let (here, there) = tokio::join!(connecting, acceptor.accept());
    Ok([Channel::Connection(here?), Channel::Connection(there?)])
}

/// Some messages in each direction.
async fn exchange(channels: &mut [Channel; 2]) -> Result<()> {
    let [client, server] = channels;
    for _ in 0..AWAY {
        client.send().await?;
        server.receive().await?;
        server.send().await?;
        client.receive().await?;
    }
    Ok(())
}

impl Channel {
    async fn send(&mut self) -> Result<()> {
        match self {
            Self::Stream(stream) => stream.write_all(&[7; 64]).await?,
            Self::Connection(connection) => connection.send(&[7; 64]).await?,
        }
        Ok(())
    }

    async fn receive(&mut self) -> Result<()> {
        let mut bytes = [0; 64];
        match self {
            Self::Stream(stream) => drop(stream.read_exact(&mut bytes).await?),
            Self::Connection(connection) => {
                let message = connection.recv().await?.context("the connection has ended")?;
                bytes.copy_from_slice(&message);
            }
        }
        ensure!(bytes[63] == 7, "wrong bytes");
        Ok(())
    }
}

/// Two connected queue pairs, whose SENDs have the same length and options as those of `Task::Read`.
struct BareEnds([BareEnd; 2]);

struct BareEnd {
    qp: GenericQueuePair,
    cq: GenericCompletionQueue,
    memory: OwnedMemoryRegion,
    sends: u64,
    /// Receives that have completed and were not posted again.
    received: usize,
}

/// A frame of trespass: a header of 16 bytes, and the message.
const FRAME: [u8; 16 + 64] = [7; 80];
const SEGMENT: u32 = 4096;
const RECEIVES: usize = 32;
/// Number of receives that are posted in one list, as in trespass.
const REFILL: usize = 8;
/// Every `SIGNAL_EVERY`-th SEND is signaled, as in trespass.
const SIGNAL_EVERY: u64 = 16;

impl BareEnds {
    fn new() -> Result<BareEnds> {
        let context = device::open();
        let pd = context.alloc_pd()?;
        let end = || -> Result<BareEnd> {
            let cq = context.create_cq_builder().setup_cqe(256).build_generic()?;
            let mut builder = pd.create_qp_builder();
            builder.setup_send_cq(&cq).setup_recv_cq(&cq).setup_max_inline_data(96);
            let qp = builder.setup_max_send_wr(64).setup_max_recv_wr(RECEIVES as u32).build_generic()?;
            let memory = pd.reg_owned_mr(SEGMENT as usize, AccessFlags::LocalWrite)?;
            Ok(BareEnd { qp, cq, memory, sends: 0, received: RECEIVES })
        };
        let mut ends = [end()?, end()?];
        for (here, there) in [(0, 1), (1, 0)] {
            let peer = ends[there].qp.qp_number();
            let qp = &ends[here].qp;
            let attributes =
                [loopback::init(), loopback::ready_to_receive(&context, peer, 0), loopback::ready_to_send(0, 7)];
            attributes.iter().try_for_each(|attributes| qp.modify(attributes))?;
            ends[here].refill()?;
        }
        Ok(BareEnds(ends))
    }

    #[inline(never)]
    fn run(&mut self, rounds: u64) -> Result<()> {
        for _ in 0..rounds {
            for from in [0, 1] {
                self.0[from].send()?;
                let to = 1 - from;
                self.0[from].poll()?;
                while self.0[to].poll()? == 0 {}
                if self.0[to].received >= REFILL {
                    self.0[to].refill()?;
                }
            }
        }
        Ok(())
    }
}

impl BareEnd {
    fn send(&mut self) -> Result<()> {
        self.sends += 1;
        let is_signaled = self.sends.is_multiple_of(SIGNAL_EVERY);
        let flags = if is_signaled { WorkRequestFlags::Signaled } else { WorkRequestFlags::empty() };
        match self.qp.queues().0 {
            GenericSendQueue::Basic(queue) => send_frame(queue, self.sends, flags),
            GenericSendQueue::Extended(queue) => send_frame(queue, self.sends, flags),
        }
    }

    /// Returns the number of messages that have arrived.
    fn poll(&mut self) -> Result<usize> {
        let mut count = 0;
        let mut take = |wr_id: u64, status| {
            ensure!(status == WorkCompletionStatus::Success, "{status}");
            count += usize::from(wr_id == 0);
            Ok(())
        };
        match &mut self.cq {
            GenericCompletionQueue::Basic(cq) => {
                if let Ok(mut poller) = cq.start_poll() {
                    while let Some(wc) = poller.next()? {
                        take(wc.wr_id(), wc.status())?;
                    }
                }
            }
            GenericCompletionQueue::Extended(cq) => {
                if let Ok(mut poller) = cq.start_poll() {
                    while let Some(wc) = poller.next()? {
                        take(wc.wr_id(), wc.status())?;
                    }
                }
            }
        }
        self.received += count;
        Ok(count)
    }

    /// Posts the completed receives again. All of them share one segment, whose content is not read.
    fn refill(&mut self) -> Result<()> {
        let mut guard = self.qp.start_post_recv();
        for _ in 0..self.received {
            // SAFETY: the memory is registered until the queue pair is dropped, which is before the memory, and no
            // reference to its bytes exists.
            unsafe { guard.construct_wr(0).setup_sge(self.memory.lkey(), self.memory.addr(), SEGMENT) };
        }
        self.received = 0;
        Ok(guard.post()?)
    }
}

#[inline]
fn send_frame<Q: SendQueue<Service = Connected>>(queue: &mut Q, number: u64, flags: WorkRequestFlags) -> Result<()> {
    let mut guard = queue.start_post_send();
    guard.construct_wr(number, flags).setup_send().setup_inline_data(&FRAME);
    Ok(guard.post()?)
}
