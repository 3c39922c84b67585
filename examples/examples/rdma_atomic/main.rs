//! Several queue pairs change one counter in the memory of a peer, by fetch-and-add and by compare-and-swap, and none of them
//! loses a step.

mod arguments;
mod holder;
mod message;
mod work;
mod worker;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::device_context::{AtomicCapability, Mtu};
use sideway_examples::LocalPort;
use sideway_examples::exchange::{Address, Peer};

use self::arguments::Arguments;
use self::holder::Holder;
use self::message::Counter;
use self::work::Table;
use self::worker::Worker;

/// Every port sends packets of that size, and the messages here are shorter.
const MTU: Mtu = Mtu::Mtu256;

fn main() -> ExitCode {
    sideway_examples::program(run)
}

fn run(arguments: Arguments, out: &mut dyn Write) -> Result<()> {
    let port = arguments.port_choice.open()?;
    let context = port.context();
    if context.query_device()?.atomic_cap() == AtomicCapability::None {
        bail!("{} has no atomic operations", context.name());
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

/// Both sides in one process: the device does not know the difference.
fn loopback(arguments: &Arguments, port: &LocalPort, out: &mut dyn Write) -> Result<()> {
    let holder = Holder::new(port, arguments.num_qp)?;
    let mut workers = workers(arguments, port)?;
    holder.connect(port, MTU, &addresses(&workers))?;
    connect(&workers, port, &holder.addresses())?;
    let sum = change(arguments, &mut workers, holder.counter(), out)?;
    verdict(&holder, "this process", sum, out)
}

/// Holds the counter.
fn server(arguments: &Arguments, port: &LocalPort, out: &mut dyn Write) -> Result<()> {
    let mut peer = Peer::accept(arguments.port, arguments.timeout)?;
    let count = message::receive_count(&mut peer)?;
    let remotes = (0..count).map(|_| peer.receive_address()).collect::<Result<Vec<_>>>()?;
    let holder = Holder::new(port, count)?;
    holder.connect(port, MTU, &remotes)?;
    holder.addresses().iter().try_for_each(|address| peer.send_address(address))?;
    message::send_counter(&mut peer, holder.counter())?;
    peer.receive_done()?;
    writeln!(out, "{} reaches the counter by {}; it holds {}", peer.name(), queue_pairs(count), holder.value()?)?;
    out.flush()?;

    let sum = message::receive_sum(&mut peer)?;
    verdict(&holder, peer.name(), sum, out)
}

/// Changes the counter of a server.
fn client(arguments: &Arguments, server: &str, port: &LocalPort, out: &mut dyn Write) -> Result<()> {
    let mut peer = Peer::connect(server, arguments.port, arguments.timeout)?;
    let mut workers = workers(arguments, port)?;
    message::send_count(&mut peer, arguments.num_qp)?;
    addresses(&workers).iter().try_for_each(|address| peer.send_address(address))?;
    let remotes = workers.iter().map(|_| peer.receive_address()).collect::<Result<Vec<_>>>()?;
    let counter = message::receive_counter(&mut peer)?;
    connect(&workers, port, &remotes)?;
    peer.send_done()?;
    let sum = change(arguments, &mut workers, counter, out)?;
    message::send_sum(&mut peer, sum)
}

fn workers(arguments: &Arguments, port: &LocalPort) -> Result<Vec<Worker>> {
    (0..arguments.num_qp).map(|_| Worker::new(port, arguments.timeout)).collect()
}

fn addresses(workers: &[Worker]) -> Vec<Address> {
    workers.iter().map(Worker::address).collect()
}

fn connect(workers: &[Worker], port: &LocalPort, remotes: &[Address]) -> Result<()> {
    workers.iter().zip(remotes).try_for_each(|(worker, remote)| worker.connect(port, MTU, remote))
}

/// Changes the counter in both ways, checks each step, and returns how much was added in all.
fn change(arguments: &Arguments, workers: &mut [Worker], counter: Counter, out: &mut dyn Write) -> Result<u64> {
    let &Arguments { num_qp, iters, add, .. } = arguments;
    // All steps together do not fill the 64 bits of the counter, and no value comes twice.
    let (total, add) = (u64::from(num_qp) * u64::from(iters), u64::from(add));
    let Counter { addr, rkey } = counter;
    let start = read(workers, counter)?;
    writeln!(out, "the counter: 8 bytes at {addr:#x} of the peer, key {:#010x}; it holds {start}", rkey.raw())?;

    writeln!(out, "\nfetch-and-add of {add}: {} at the same time, {iters} steps each", queue_pairs(num_qp))?;
    out.flush()?;
    let steps = work::fetch_and_add(workers, counter, iters, add)?;
    write!(out, "{}", Table(&steps))?;
    work::check(&steps, start, add)?;
    let between = expect(workers, counter, start.wrapping_add(total.wrapping_mul(add)))?;
    writeln!(out, "  each of the {total} steps found another value; the counter holds {between}")?;

    writeln!(out, "\ncompare-and-swap: the same by swaps, which fail when another was faster and are tried again")?;
    out.flush()?;
    let steps = work::compare_and_swap(workers, counter, iters, add)?;
    write!(out, "{}", Table(&steps))?;
    work::check(&steps, between, add)?;
    let end = expect(workers, counter, between.wrapping_add(total.wrapping_mul(add)))?;
    writeln!(out, "  each of the {total} steps found another value; the counter holds {end}")?;
    Ok(end.wrapping_sub(start))
}

fn queue_pairs(count: u16) -> String {
    format!("{count} queue pair{}", if count == 1 { "" } else { "s" })
}

/// What the counter holds: adding 0 is a read that is atomic like the rest.
fn read(workers: &mut [Worker], counter: Counter) -> Result<u64> {
    workers.first_mut().context("there is no queue pair")?.fetch_add(counter, 0)
}

/// The same, where we know it.
fn expect(workers: &mut [Worker], counter: Counter, expected: u64) -> Result<u64> {
    let value = read(workers, counter)?;
    if value != expected {
        bail!("the counter holds {value} and the sum of all steps is {expected}");
    }
    Ok(value)
}

/// The side that holds the counter has the last word. It began at 0.
fn verdict(holder: &Holder, who: &str, sum: u64, out: &mut dyn Write) -> Result<()> {
    let value = holder.value()?;
    if value != sum {
        bail!("{who} has added {sum} in all, and the memory of the counter holds {value}");
    }
    writeln!(out, "\n{who} has added {sum} in all, and that is what the memory of the counter holds")?;
    Ok(())
}
