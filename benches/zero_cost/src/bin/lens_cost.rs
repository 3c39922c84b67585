//! Counts the instructions that a lens adds to a request and its completion, on a device that does nothing, and takes the
//! time that a trace adds.

use std::hint::black_box;
use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::builder::PossibleValue;
use clap::{Parser, ValueEnum};
use rdma_lens::{Format, Lens};
use sideway::ibverbs::completion::CompletionQueue;
use sideway::ibverbs::queue_pair::QueuePair;
use sideway_test_names::Folder;
use sideway_zero_cost::callgrind::exit;
use sideway_zero_cost::count::{count, counted};
use sideway_zero_cost::work::{BATCH, Interface, Task};
use sideway_zero_cost::{allocations, objects};

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

/// Count the instructions that a lens adds to a request and its completion, and take the time that a trace adds
///
/// Fails if the instructions exceed their limit, or if a lens that counts allocates.
#[derive(Debug, Parser)]
#[command(name = "lens_cost", version, max_term_width = 110)]
struct Arguments {
    /// What the lens does in a run, instead of measuring all
    #[arg(value_enum, requires = "interface")]
    lens: Option<What>,
    /// The interface of the run
    #[arg(value_enum)]
    interface: Option<Interface>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// There is none
    Absent,
    /// It is installed, and does nothing
    Idle,
    /// It counts
    Counts,
    /// It traces
    Traces,
}

impl What {
    fn install(self) -> Result<Option<Lens>> {
        let builder = Lens::builder();
        Ok(match self {
            Self::Absent => None,
            Self::Idle => Some(builder.install()?),
            Self::Counts => Some(builder.count().install()?),
            Self::Traces => Some(builder.trace(Format::Json, io::sink()).install()?),
        })
    }

    /// The limit of instructions that are added to a request and its completion, in batches of 32.
    fn limit(self, interface: Interface) -> f64 {
        match (self, interface) {
            (Self::Idle, Interface::Basic) => 3.0,
            (Self::Idle, Interface::Extended) => 76.0,
            (_, Interface::Basic) => 62.0,
            (_, Interface::Extended) => 215.0,
        }
    }
}

fn main() -> ExitCode {
    exit(carry_out(&Arguments::parse()))
}

fn carry_out(arguments: &Arguments) -> Result<bool> {
    if let (Some(what), Some(interface)) = (arguments.lens, arguments.interface) {
        let _lens = what.install()?;
        let mut run = prepare(interface)?;
        counted(|rounds| allocations::none_in(|| Ok(run(rounds))))?;
        return Ok(true);
    }
    let (folder, program) = (Folder::new(), std::env::current_exe()?);
    let mut out = io::stdout();
    writeln!(out, "added to a request and its completion      idle    counts    traces")?;
    let mut is_within = true;
    for &interface in Interface::value_variants() {
        let cost = |what: What| -> Result<f64> {
            let words = [name(what.to_possible_value()), name(interface.to_possible_value())];
            let costs = count(&program, &words, (1, BATCH), folder.path(), None)?;
            costs.first().map(|cost| cost.whole()).context("no run was counted")
        };
        let absent = cost(What::Absent)?;
        write!(out, "{:37}", format!("{interface:?}, batches of {BATCH}"))?;
        for what in [What::Idle, What::Counts] {
            let added = cost(what)? - absent;
            write!(out, " {added:9.1}")?;
            is_within &= added <= what.limit(interface);
        }
        writeln!(out, " {:6.0} ns", (time(What::Traces, interface)? - time(What::Absent, interface)?))?;
    }
    Ok(is_within)
}

fn name(value: Option<PossibleValue>) -> String {
    value.map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Nanoseconds of a request and its completion. Between bursts, the writer of the trace empties the rings.
fn time(what: What, interface: Interface) -> Result<f64> {
    const BURST: u64 = 3000 / BATCH as u64;
    const BURSTS: u32 = 20;
    let lens = what.install()?;
    let mut run = prepare(interface)?;
    let mut total = Duration::ZERO;
    for _ in 0..BURSTS {
        thread::sleep(Duration::from_millis(30));
        let start = Instant::now();
        black_box(run(BURST));
        total += start.elapsed();
    }
    lens.map_or(Ok(()), Lens::finish)?;
    Ok(total.as_nanos() as f64 / (u64::from(BURSTS) * BURST * u64::from(BATCH)) as f64)
}

/// Returns a loop that posts batches of writes, and polls their completions.
fn prepare(interface: Interface) -> Result<Box<dyn FnMut(u64) -> u64>> {
    // The device numbers its completions.
    let mut done = 0;
    Ok(match interface {
        Interface::Basic => {
            let (qp, cq) = objects::basic(Task::Post32)?;
            Box::new(move |rounds| {
                done += rounds;
                basic::run(&qp, &cq, done - rounds, rounds)
            })
        }
        Interface::Extended => {
            let (qp, cq) = objects::extended(Task::Post32)?;
            ensure!(extended::has_all(&qp), "the device lacks an operation");
            Box::new(move |rounds| {
                done += rounds;
                extended::run(&qp, &cq, done - rounds, rounds)
            })
        }
    })
}

mod basic {
    use std::{mem, ptr};

    use rdma_mummy_sys::*;

    use super::{BATCH, CompletionQueue, QueuePair};

    pub(crate) fn run(qp: &impl QueuePair, cq: &impl CompletionQueue, first_round: u64, rounds: u64) -> u64 {
        let mut segment = ibv_sge { addr: 0x1000, length: 64, lkey: 1 };
        // SAFETY: the structs have only numbers, pointers and unions of these.
        let mut list: [ibv_send_wr; BATCH as usize] = unsafe { mem::zeroed() };
        // SAFETY: as above.
        let mut completions: [ibv_wc; BATCH as usize] = unsafe { mem::zeroed() };
        let first = list.as_mut_ptr();
        for (index, request) in list.iter_mut().enumerate() {
            request.sg_list = &raw mut segment;
            request.num_sge = 1;
            request.opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
            request.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
            request.next = if index + 1 < BATCH as usize { first.wrapping_add(index + 1) } else { ptr::null_mut() };
        }
        let mut sum = 0;
        // SAFETY: the queues are live, and so are the requests and the space for the completions. The device reads no
        // memory.
        unsafe {
            let (qp, cq) = (qp.qp().as_ptr(), cq.cq().as_ptr());
            let mut bad = ptr::null_mut();
            for round in first_round..first_round + rounds {
                for (index, request) in list.iter_mut().enumerate() {
                    request.wr_id = round * u64::from(BATCH) + index as u64;
                }
                ibv_post_send(qp, first, &raw mut bad);
                sum += ibv_poll_cq(cq, BATCH.cast_signed(), completions.as_mut_ptr()).unsigned_abs();
            }
        }
        sum.into()
    }
}

mod extended {
    use std::ptr;

    use rdma_mummy_sys::*;

    use super::{BATCH, CompletionQueue, QueuePair};

    pub(crate) fn has_all(qp: &impl QueuePair) -> bool {
        // SAFETY: the queue pair is live.
        unsafe { (*qp.qp().as_ptr().cast::<ibv_qp_ex>()).wr_rdma_write }.is_some()
    }

    pub(crate) fn run(qp: &impl QueuePair, cq: &impl CompletionQueue, first_round: u64, rounds: u64) -> u64 {
        let mut sum = 0;
        // SAFETY: the queues are live and extended, and have the functions. The device reads no memory.
        unsafe {
            let (qp, cq) = (qp.qp().as_ptr().cast::<ibv_qp_ex>(), cq.cq().as_ptr().cast::<ibv_cq_ex>());
            let mut attributes = ibv_poll_cq_attr { comp_mask: 0 };
            for round in first_round..first_round + rounds {
                ibv_wr_start(qp);
                for index in 0..BATCH {
                    (*qp).wr_id = round * u64::from(BATCH) + u64::from(index);
                    (*qp).wr_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
                    ibv_wr_rdma_write(qp, 1, 0x1000);
                    ibv_wr_set_sge(qp, 1, 0x1000, 64);
                }
                ibv_wr_complete(qp);
                if ibv_start_poll(cq, ptr::from_mut(&mut attributes)) == 0 {
                    sum += (*cq).wr_id;
                    while ibv_next_poll(cq) == 0 {
                        sum += (*cq).wr_id;
                    }
                    ibv_end_poll(cq);
                }
            }
        }
        sum
    }
}
