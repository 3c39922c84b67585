//! The client: each step for all connections before the next.

use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};

use super::arguments::Arguments;
use super::connection::{Connection, Plan};
use super::failures::Failures;
use super::lane::Lane;
use super::queues::Queues;
use super::step::Step;
use super::table::Table;

pub(crate) fn run(arguments: &Arguments, server: &str, out: &mut dyn Write) -> Result<()> {
    let destination = resolve(server, arguments)?;
    let mut client = Client::new(arguments, destination)?;
    for step in [Step::CreateId, Step::Bind, Step::ResolveAddress, Step::ResolveRoute] {
        if step != Step::Bind || arguments.bind.is_some() {
            client.take(step, out)?;
        }
    }
    client.open_device()?;
    for step in [Step::CreateQueuePair, Step::Connect, Step::Disconnect, Step::Destroy] {
        client.take(step, out)?;
    }
    write!(out, "{}", client.table)?;
    client.verdict()
}

/// The address of the server; of the family of the address to bind, where there is one.
fn resolve(server: &str, arguments: &Arguments) -> Result<SocketAddr> {
    let addresses = (server, arguments.port).to_socket_addrs().with_context(|| format!("looking up {server}"))?;
    let mut addresses =
        addresses.filter(|address| arguments.bind.is_none_or(|bind| bind.is_ipv4() == address.is_ipv4()));
    addresses.next().with_context(|| match arguments.bind {
        Some(bind) => format!("{server} has no address of the same family as {bind}"),
        None => format!("{server} has no address"),
    })
}

/// The connections, each in the lane of a thread.
struct Client {
    lanes: Vec<Lane>,
    table: Table,
}

impl Client {
    fn new(arguments: &Arguments, destination: SocketAddr) -> Result<Self> {
        let count = arguments.client_connections();
        let threads = usize::from(arguments.threads).min(count);
        let lanes = (0..threads).map(|lane| {
            // The first ones have one more where it does not come out even.
            let share = count / threads + usize::from(lane < count % threads);
            Ok(Lane::new(Plan::new(arguments, destination)?, share, arguments))
        });
        Ok(Self { lanes: lanes.collect::<Result<_>>()?, table: Table::default() })
    }

    /// Makes what the queue pairs share, before their step is timed.
    fn open_device(&mut self) -> Result<()> {
        let alive = self.lanes.iter().flat_map(Lane::connections).find_map(Connection::id_in_play);
        if let Some(id) = alive {
            let domain = Queues::default().domain(id)?;
            for lane in &mut self.lanes {
                lane.plan.domain = Some(Arc::clone(&domain));
            }
        }
        Ok(())
    }

    /// Takes a step for all connections that are still in.
    fn take(&mut self, step: Step, out: &mut dyn Write) -> Result<()> {
        writeln!(out, "{}", step.title())?;
        out.flush()?;
        for lane in &mut self.lanes {
            lane.prepare();
        }
        let began = Instant::now();
        match self.lanes.as_mut_slice() {
            // Too little to start threads for.
            lanes if matches!(step, Step::CreateId | Step::Bind | Step::Destroy) => {
                lanes.iter_mut().try_for_each(|lane| lane.take(step))?;
            }
            [lane] => lane.take(step)?,
            lanes => take_at_once(step, lanes)?,
        }
        let total = began.elapsed();
        self.table.enter(step, total, self.lanes.iter().flat_map(Lane::connections).map(Connection::span));
        Ok(())
    }

    fn verdict(self) -> Result<()> {
        let count: usize = self.lanes.iter().map(|lane| lane.connections().len()).sum();
        let mut failures = Failures::default();
        for lane in self.lanes {
            failures.add(lane.into_failures());
        }
        match failures.total() {
            0 => Ok(()),
            failed => bail!("{failed} of {count} connections failed: {failures}"),
        }
    }
}

/// Each lane by a thread of its own.
fn take_at_once(step: Step, lanes: &mut [Lane]) -> Result<()> {
    thread::scope(|scope| {
        let threads: Vec<_> = lanes.iter_mut().map(|lane| scope.spawn(move || lane.take(step))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread has failed"))?)
    })
}
