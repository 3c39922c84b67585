//! Runs a rank: receives the orders of rank 0, and starts a thread for each test.

use std::collections::HashMap;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use super::{meet, test};
use crate::cli::{Mesh, Rail};
use crate::control::{Partial, Stop};
use crate::endpoint::EndpointFactory;
use crate::mesh::launcher::Membership;
use crate::mesh::member::{Member, Task, failed};
use crate::mesh::message::{Ended, LONGEST_ORDER, Order, Report};
use crate::thread::start;

/// Interval of the progress reports to rank 0.
const BEAT: Duration = Duration::from_millis(500);

/// What a rank waits for.
enum Input {
    Order(Order),
    /// The connection to rank 0 has ended.
    Lost(String),
    Served(u64),
    Measured(Ended),
}

/// Runs the rank until rank 0 ends the mesh.
pub(super) fn run(
    mesh: &Arc<Mesh>,
    membership: &Membership,
    stream: TcpStream,
    factory: &'static dyn EndpointFactory,
) -> Result<()> {
    let (sender, receiver) = channel();
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(Some(mesh.contact.timeout))?;
    receive(stream.try_clone()?, sender.clone())?;
    let member = Member::new(membership.size as usize, mesh.rails.len());
    let mut rank = Rank {
        mesh: Arc::clone(mesh),
        factory,
        stream,
        sender,
        member,
        servers: HashMap::new(),
        beats: HashMap::new(),
    };
    let mut reported = Instant::now();
    loop {
        let task = match receiver.recv_timeout(BEAT) {
            Ok(Input::Order(order)) => Some(rank.member.order(order)),
            Ok(Input::Lost(why)) => bail!("rank 0: {why}"),
            Ok(Input::Served(test)) => {
                rank.servers.remove(&test);
                rank.member.served(test);
                None
            }
            Ok(Input::Measured(ended)) => {
                rank.beats.remove(&ended.test);
                Some(rank.member.measured(ended))
            }
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => bail!("the threads of this rank have ended"),
        };
        match task {
            Some(Task::End(end)) => return end.map_err(|why| anyhow!(why)),
            Some(task) => rank.begin(task)?,
            None => {}
        }
        if reported.elapsed() >= BEAT {
            reported = Instant::now();
            rank.report_progress()?;
        }
    }
}

struct Rank {
    mesh: Arc<Mesh>,
    factory: &'static dyn EndpointFactory,
    stream: TcpStream,
    sender: Sender<Input>,
    member: Member,
    servers: HashMap<u64, Stop>,
    /// The signs of progress of each measurement, and their number at the last report.
    beats: HashMap<u64, (Arc<AtomicU64>, u64)>,
}

impl Rank {
    fn begin(&mut self, task: Task) -> Result<()> {
        match task {
            Task::Send(report) => self.send(&report),
            Task::Serve { test, rail } => match self.serve(test, rail) {
                Ok(port) => self.send(&Report::Listening { test, port }),
                Err(error) => {
                    self.member.served(test);
                    self.send(&failed(test, format!("{error:#}")))
                }
            },
            Task::Measure { test, rail, address, port } => match self.measure(test, rail, address, port) {
                Ok(()) => Ok(()),
                Err(error) => {
                    self.beats.remove(&test);
                    let report = failed(test, format!("{error:#}"));
                    let Report::Ended(ended) = report else { return Ok(()) };
                    let task = self.member.measured(*ended);
                    self.begin(task)
                }
            },
            Task::Stop(test) => {
                self.servers.get(&test).into_iter().for_each(Stop::stop);
                Ok(())
            }
            Task::End(_) => Ok(()),
        }
    }

    fn send(&mut self, report: &Report) -> Result<()> {
        meet::write(&mut self.stream, report).context("cannot send to rank 0")
    }

    fn rail(&self, rail: usize) -> Result<Rail> {
        self.mesh.rails.get(rail).cloned().with_context(|| format!("there is no rail with the index {rail}"))
    }

    /// Starts a server on a thread, and returns its port.
    fn serve(&mut self, test: u64, rail: usize) -> Result<u16> {
        let (rail, mesh, factory, sender) =
            (self.rail(rail)?, Arc::clone(&self.mesh), self.factory, self.sender.clone());
        let listener = test::listen(&mesh).map_err(|failure| anyhow!("{failure}"))?;
        let (port, stop) = (listener.local_addr()?.port(), Stop::new(&listener)?);
        start(move || {
            test::serve(&listener, &mesh, &rail, factory);
            // Ignores the error, because the rank may have ended.
            let _ = sender.send(Input::Served(test));
        })?;
        self.servers.insert(test, stop);
        Ok(port)
    }

    /// Starts a measurement on a thread.
    fn measure(&mut self, test: u64, rail: usize, address: String, port: u16) -> Result<()> {
        let (rail, mesh, factory, sender) =
            (self.rail(rail)?, Arc::clone(&self.mesh), self.factory, self.sender.clone());
        let beats = Arc::new(AtomicU64::new(0));
        self.beats.insert(test, (Arc::clone(&beats), 0));
        start(move || {
            let ended = test::measure(&mesh, &rail, test, (&address, port), factory, &beats);
            let _ = sender.send(Input::Measured(ended));
        })
        .map(drop)
    }

    /// Reports the measurements that have made progress.
    fn report_progress(&mut self) -> Result<()> {
        let mut alive = Vec::new();
        for (test, (beats, reported)) in &mut self.beats {
            let count = beats.load(Ordering::Relaxed);
            if std::mem::replace(reported, count) != count {
                alive.push(*test);
            }
        }
        alive.into_iter().try_for_each(|test| self.send(&Report::Alive { test }))
    }
}

/// Starts a thread that receives the orders of rank 0.
fn receive(mut stream: TcpStream, sender: Sender<Input>) -> Result<()> {
    start(move || {
        let mut partial = Partial::new(LONGEST_ORDER);
        loop {
            let order = meet::read(&mut stream, &mut partial);
            let is_lost = order.is_err();
            if sender.send(order.map_or_else(Input::Lost, Input::Order)).is_err() || is_lost {
                return;
            }
        }
    })
    .map(drop)
}
