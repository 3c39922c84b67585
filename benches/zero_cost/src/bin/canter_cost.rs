//! Counts the instructions, allocations and system calls of requests by futures, on softrnic in one process, beside the
//! same requests with sideway alone. `COST_FUNCTIONS=1` divides the instructions among the functions.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use canter::{Batch, Buf, Connection, Core, Error, Exposed, Remote, Rights};
use clap::{Parser, ValueEnum};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::{GenericCompletionQueue, PollCompletionQueueError, WorkCompletionStatus};
use sideway::ibverbs::memory_region::OwnedMemoryRegion;
use sideway::ibverbs::queue_pair::{GenericQueuePair, PostSendGuard, QueuePair, RcOptions, WorkRequestFlags};
use sideway_test_names::Folder;
use sideway_tests::device;
use sideway_zero_cost::allocations;
use sideway_zero_cost::callgrind::{Loop, exit, measure};

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

/// Count the instructions and system calls of a request of 128 B by a future
///
/// Fails if a loop exceeds its limit, or allocates.
#[derive(Debug, Parser)]
#[command(name = "canter_cost", version, max_term_width = 110)]
struct Arguments {
    /// Loop to run, instead of measuring all
    #[arg(value_enum, requires = "rounds")]
    task: Option<Task>,
    /// Number of rounds
    rounds: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Task {
    /// 32 writes, posted at once
    Batch,
    /// 32 writes, posted at once, of the same batch each time
    SameBatch,
    /// 32 writes, posted at once, with sideway alone; only the last is signaled
    SidewayBatch,
    /// One write
    Write,
    /// One write with sideway alone
    SidewayWrite,
    /// One message and its receive
    Message,
}

const SIZE: usize = 128;
const BATCH: u32 = 32;

impl Loop for Task {
    fn count(self) -> u64 {
        match self {
            Self::Batch | Self::SameBatch | Self::SidewayBatch => BATCH.into(),
            _ => 1,
        }
    }

    fn limit(self) -> f64 {
        match self {
            Self::Batch => 140.0,
            Self::SameBatch => 80.0,
            Self::SidewayBatch => 30.0,
            Self::Write => 1000.0,
            Self::SidewayWrite => 95.0,
            Self::Message => 1500.0,
        }
    }
}

fn main() -> ExitCode {
    exit(carry_out(&Arguments::parse()))
}

/// Runs one loop, or measures all; `false` if a limit is exceeded.
fn carry_out(arguments: &Arguments) -> Result<bool> {
    let (Some(task), Some(rounds)) = (arguments.task, arguments.rounds) else {
        check_allocations()?;
        return measure::<Task>("a request", Folder::new().path(), &mut io::stdout());
    };
    // The first rounds allocate memory.
    match task {
        Task::SidewayBatch | Task::SidewayWrite => {
            let mut ends = BareEnds::new()?;
            ends.run(task, 300)?;
            ends.run(task, rounds)?;
        }
        _ => {
            let mut ends = Ends::new()?;
            ends.run(task, 300)?;
            ends.run(task, rounds)?;
        }
    }
    Ok(true)
}

/// Checks that no task of a core allocates.
fn check_allocations() -> Result<()> {
    let mut ends = Ends::new()?;
    for task in [Task::Batch, Task::SameBatch, Task::Write, Task::Message] {
        ends.run(task, 300)?;
        let mut run = || allocations::none_in(|| ends.run(task, 3000));
        // A thread of softrnic that starts meanwhile allocates, once.
        run().or_else(|_| run())?;
    }
    Ok(())
}

/// A connection of a core with itself.
struct Ends {
    core: Core,
    client: Connection,
    server: Connection,
    /// The buffers that are not in use.
    bufs: Vec<Buf>,
    batch: Batch,
    memory: Exposed,
}

impl Ends {
    fn new() -> Result<Self> {
        let context = device::open();
        // Without sleeps, whose number depends on the time.
        let core = Core::builder_on(&context).spin(Duration::MAX).build()?;
        let (one, other) = (core.unconnected(RcOptions::new())?, core.unconnected(RcOptions::new())?);
        let (near, far) = (one.endpoint(), other.endpoint());
        let (client, server) = (one.connect(&far)?, other.connect(&near)?);
        let (pool, memory) = (core.pool(SIZE, BATCH)?, core.expose(SIZE, Rights::ReadWrite)?);
        let bufs = std::iter::from_fn(|| pool.try_get()).collect();
        Ok(Self { core, client, server, bufs, batch: Batch::new(), memory })
    }

    #[inline(never)]
    fn run(&mut self, task: Task, rounds: u64) -> Result<()> {
        let Self { core, client, server, bufs, batch, memory } = self;
        let remote = memory.remote();
        bufs.extend(batch.drain());
        core.run(async {
            for _ in 0..rounds {
                if task == Task::SameBatch {
                    while let Some(buf) = bufs.pop() {
                        batch.write(buf, remote);
                    }
                    client.submit(batch).await?;
                    continue;
                }
                if task == Task::Batch {
                    submit(client, bufs, batch, remote).await?;
                    continue;
                }
                let buf = bufs.pop().context("all buffers are in use")?;
                let buf = match task {
                    Task::Message => {
                        let buf = client.send(buf).await?;
                        drop(server.recv().await?.ok_or(Error::Closed)?);
                        buf
                    }
                    _ => client.write(buf, remote).await?,
                };
                bufs.push(buf);
            }
            Ok(())
        })
    }
}

async fn submit(client: &Connection, bufs: &mut Vec<Buf>, batch: &mut Batch, remote: Remote) -> Result<()> {
    while let Some(buf) = bufs.pop() {
        batch.write(buf, remote);
    }
    client.submit(batch).await?;
    bufs.extend(batch.drain());
    ensure!(bufs.len() == BATCH as usize, "buffers are lost");
    Ok(())
}

/// Two connected queue pairs, without canter.
struct BareEnds {
    qp: GenericQueuePair,
    cq: GenericCompletionQueue,
    _peer: GenericQueuePair,
    memory: OwnedMemoryRegion,
}

impl BareEnds {
    fn new() -> Result<Self> {
        let context = device::open();
        let pd = context.alloc_pd()?;
        let cq = context.create_cq_builder().setup_cqe(256).build_generic()?;
        let pair =
            || pd.create_qp_builder().setup_send_cq(&cq).setup_recv_cq(&cq).setup_max_send_wr(64).build_generic();
        let (qp, peer): (GenericQueuePair, GenericQueuePair) = (pair()?, pair()?);
        let options = RcOptions::new();
        let (near, far) = (qp.local_endpoint(&options)?, peer.local_endpoint(&options)?);
        qp.connect_rc(&far, &options)?;
        peer.connect_rc(&near, &options)?;
        let memory = pd.reg_owned_mr(2 * SIZE, AccessFlags::LocalWrite | AccessFlags::RemoteWrite)?;
        Ok(Self { qp, cq, _peer: peer, memory })
    }

    #[inline(never)]
    fn run(&mut self, task: Task, rounds: u64) -> Result<()> {
        let count = task.count();
        let (key, address) = (self.memory.rkey(), self.memory.addr());
        for _ in 0..rounds {
            let mut batch = self.qp.start_post_send();
            for number in 1..=count {
                let flags = if number == count { WorkRequestFlags::Signaled } else { WorkRequestFlags::empty() };
                let write = batch.construct_wr(number, flags).setup_write(key, address + SIZE as u64);
                // SAFETY: the memory outlives the queue pair, and no reference to its bytes exists.
                unsafe { write.setup_sge(self.memory.lkey(), address, SIZE as u32) };
            }
            batch.post()?;
            while self.cq.poll_each(64, |wc| {
                assert_eq!((wc.wr_id(), wc.status()), (count, WorkCompletionStatus::Success));
                Ok::<_, PollCompletionQueueError>(())
            })? == 0
            {}
        }
        Ok(())
    }
}
