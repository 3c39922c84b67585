//! The client: requests the steps of a test, and measures.

use std::os::fd::AsFd;

use super::connection::Connection;
use super::failure::Failure;
use super::interval_check::IntervalCheck;
use super::keepalive::Keepalive;
use super::message::{Done, Message, Offer, Request};
use super::path::{self, Near};
use crate::endpoint::{Counted, Endpoint, EndpointFactory, Path, PeerInfo, PortInfo, Role, StepProgress};
use crate::plan::{NAMED, PathLimits, SWEPT, Transport};
use crate::stats::{Figures, Interval};

/// Observes a running test.
pub trait Watch {
    /// Called when both sides are open. `path` is the path between them.
    fn met(&mut self, _client: &PortInfo, _server: &PortInfo, _path: &Path) {}

    /// Called when a step has progressed to `done`, which goes from 0.0 to 1.0. If the observer returns `false`, the
    /// test ends, either within the step or before the step starts.
    fn progress(&mut self, _size: u64, _done: f64) -> bool {
        true
    }

    /// Called when an interval of the running step has ended. The figures are those of this side, or those of the
    /// server if this side measures nothing.
    fn interval(&mut self, _size: u64, _interval: &Interval) {}

    /// Called when a step has ended.
    fn step(&mut self, _step: &Step) {}

    /// Passes on a remark of this side for the user.
    fn remark(&mut self, _text: &str) {}

    /// Passes on a remark of the server for the user.
    fn note(&mut self, _text: &str) {}
}

/// An observer that ignores everything.
impl Watch for () {}

/// The results of one size.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Message size in bytes.
    pub size: u64,
    /// The client's figures.
    pub client: Option<Figures>,
    /// The server's figures.
    pub server: Option<Figures>,
    /// How much the requested counters have changed.
    pub counters: Option<Counted>,
    /// Whether the step ran to its planned end.
    pub is_whole: bool,
}

/// The results of a test.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The client's device and port.
    pub client: PortInfo,
    /// The server's device and port.
    pub server: PortInfo,
    /// The path between the two ports.
    pub path: Path,
    /// One step per measured size.
    pub steps: Vec<Step>,
}

/// Runs a test with the server at the other end of the connection, after the handshake.
///
/// # Errors
///
/// Returns the failure of either side. A failure of this side is also sent to the server.
pub fn measure(
    mut connection: Connection,
    near: Near,
    factory: &dyn EndpointFactory,
    request: &Request,
    watch: &mut dyn Watch,
) -> Result<Outcome, Failure> {
    let mut request = request.clone();
    if request.plan.attributes.uses_rdma_cm {
        request.plan.attributes.address = near.server;
    }
    let outcome = Client { connection: &mut connection, factory, request: &request, watch }.test(near);
    match &outcome {
        Ok(_) => connection.linger(),
        Err(failure) => connection.part(failure),
    }
    outcome
}

struct Client<'a> {
    connection: &'a mut Connection,
    factory: &'a dyn EndpointFactory,
    request: &'a Request,
    watch: &'a mut dyn Watch,
}

impl Client<'_> {
    fn test(&mut self, near: Near) -> Result<Outcome, Failure> {
        let plan = &self.request.plan;
        plan.check()?;
        let mut side = self.factory.open(plan, &plan.placement.client, Role::Client)?;
        let mut request = self.request.clone();
        request.plan.attributes.is_iwarp = side.port_info().is_iwarp();
        self.connection.send(&Message::Request(Box::new(request)))?;
        let mut offer = match self.receive()? {
            Message::Offer(offer) => *offer,
            other => return self.connection.unexpected(&other, "offer"),
        };
        let path = self.path(side.port_info(), &offer, near)?;
        let theirs = self.connect(&mut *side, &path)?;
        offer.port_info.inline = Some(theirs.inline);
        for (port_info, peer_info) in offer.port_info.others.iter_mut().zip(&theirs.others) {
            port_info.inline = Some(peer_info.inline);
        }
        self.watch.met(side.port_info(), &offer.port_info, &path);
        let mut steps: Vec<Step> = Vec::new();
        let sizes = self.fitting(path.limits(&[side.port_info(), &offer.port_info]));
        for size in &sizes {
            if !self.watch.progress(*size, 0.0) {
                break;
            }
            let step = self.step(&mut *side, *size)?;
            self.watch.step(&step);
            let is_whole = step.is_whole;
            steps.push(step);
            if !is_whole {
                break;
            }
        }
        self.connection.send(&Message::End)?;
        side.end();
        Ok(Outcome { client: side.port_info().clone(), server: offer.port_info, path, steps })
    }

    /// Receives the next message. The observer receives all notes that arrive before that message.
    fn receive(&mut self) -> Result<Message, Failure> {
        let message = self.connection.receive();
        self.forward_notes();
        message
    }

    fn forward_notes(&mut self) {
        for note in self.connection.notes() {
            self.watch.note(&note);
        }
    }

    fn path(&mut self, client: &PortInfo, offer: &Offer, near: Near) -> Result<Path, Failure> {
        let plan = &self.request.plan;
        let (found, due) = (offer.port_info.all().count(), client.all().count());
        if found != due {
            return self.connection.broken(format!("sent {found} ports, expected {due}"));
        }
        let theirs = std::iter::once(&offer.gid_index).chain(&offer.other_gid_indices);
        let ours = plan.placement.client.spots().into_iter().map(|spot| spot.gid_index);
        let asked: Vec<_> = ours.zip(theirs.copied().chain(std::iter::repeat(None))).map(<[_; 2]>::from).collect();
        let path = path::choose_all(client, &offer.port_info, &asked, plan, near)?;
        let is_default = !self.request.given.has(&[NAMED, SWEPT]);
        let limits = path.limits(&[client, &offer.port_info]);
        if !is_default || !plan.workload.sizes.iter().any(|size| plan.fits(*size, limits)) {
            plan.check_limits(limits, if self.request.given.has(&[NAMED]) { NAMED } else { SWEPT })?;
        }
        Ok(path)
    }

    /// Returns the sizes of the test. If the user gave no largest size, a sweep stops at the largest message that the
    /// path supports.
    fn fitting(&mut self, limits: PathLimits) -> Vec<u64> {
        let plan = &self.request.plan;
        let (sizes, others): (Vec<u64>, _) = plan.workload.sizes.iter().partition(|size| plan.fits(**size, limits));
        if !others.is_empty() {
            let most = plan.limit(limits).unwrap_or(u32::MAX);
            let remark = if plan.attributes.transport == Transport::Ud {
                format!("a datagram holds at most {most} bytes on this path; larger sizes are skipped")
            } else {
                format!(
                    "a message over {} holds at most {most} bytes on this path; larger sizes are skipped",
                    plan.attributes.transport
                )
            };
            self.watch.remark(&remark);
        }
        sizes
    }

    /// Connects the queue pairs. Returns the description of the server's queue pairs.
    fn connect(&mut self, side: &mut dyn Endpoint, path: &Path) -> Result<PeerInfo, Failure> {
        self.connection.send(&Message::Path(path.clone()))?;
        let ours = side.create_queue_pairs(path)?;
        self.connection.send(&Message::PeerInfo(ours))?;
        let theirs = match self.receive()? {
            Message::PeerInfo(peer_info) => peer_info,
            other => return self.connection.unexpected(&other, "ends"),
        };
        path::check_ends(&theirs, path, &self.request.plan).or_else(|what| self.connection.broken(what))?;
        side.connect(path, &theirs).map_err(|error| self.connection.failed(error))?;
        self.connection.send(&Message::Connected)?;
        match self.receive()? {
            Message::Connected => Ok(theirs),
            other => self.connection.unexpected(&other, "connected"),
        }
    }

    fn step(&mut self, side: &mut dyn Endpoint, size: u64) -> Result<Step, Failure> {
        self.connection.send(&Message::Size(size))?;
        side.prepare(size).map_err(Failure::rdma)?;
        match self.receive()? {
            Message::Ready => {}
            other => return self.connection.unexpected(&other, "ready"),
        }
        self.connection.send(&Message::Go)?;
        let mut check = IntervalCheck::new(&self.request.plan, size);
        let (client, mut server, is_whole) = self.run(side, size, &mut check)?;
        let was_cut = !is_whole;
        // An endless step is complete when the user ends it.
        let is_whole = is_whole || self.request.plan.workload.is_endless;
        self.connection.send(&Message::Done(Done { is_whole }))?;
        while server.is_none() {
            match self.receive()? {
                Message::Progress(_) => {}
                Message::Interval(interval) if !self.request.plan.client_sends() => {
                    check.take(&interval).or_else(|what| self.connection.broken(what))?;
                    self.watch.interval(size, &interval);
                }
                Message::Figures(figures) => server = Some(figures),
                other => return self.connection.unexpected(&other, "figures"),
            }
        }
        let client = self.settle(side, size, client, was_cut)?;
        let counters = self.count(side)?;
        // After a step that was cut short, some slots of the buffers contain no message, so their data cannot be
        // checked.
        if self.request.plan.workload.is_validated && is_whole {
            side.check(size).map_err(Failure::rdma)?;
            match self.receive()? {
                Message::Checked => {}
                other => return self.connection.unexpected(&other, "checked"),
            }
        }
        Ok(Step { size, client, server: server.flatten(), counters, is_whole })
    }

    /// Waits until late messages of the server have had time to arrive, and returns the client's figures.
    fn settle(
        &mut self,
        side: &mut dyn Endpoint,
        size: u64,
        figures: Option<Figures>,
        was_cut: bool,
    ) -> Result<Option<Figures>, Failure> {
        let (mut keepalive, mut trouble) = (Keepalive::new(), None);
        let (connection, watch) = (&mut *self.connection, &mut *self.watch);
        let settled = side.settle(size, figures, was_cut, &mut || {
            // Does not read the connection, because any further message from the server belongs to the next step.
            trouble = trouble.take().or_else(|| keepalive.report(connection, 1.0).err());
            trouble.is_none() && watch.progress(size, 1.0)
        });
        match trouble {
            Some(failure) => Err(failure),
            None => settled.map_err(Failure::rdma),
        }
    }

    /// Returns the counter changes of both sides if the user requested counters.
    fn count(&mut self, side: &mut dyn Endpoint) -> Result<Option<Counted>, Failure> {
        if self.request.plan.sampling.counters.is_empty() {
            return Ok(None);
        }
        let client = side.counted();
        match self.receive()? {
            Message::Counted(server) => Ok(Some(Counted { client, server })),
            other => self.connection.unexpected(&other, "counted"),
        }
    }

    /// Runs the step. Returns the client's figures, and the server's figures if the server finished first. Also returns
    /// whether the step ran to its end, or the user stopped it.
    #[expect(clippy::type_complexity, reason = "the server's result contradicts what the client measured")]
    fn run(
        &mut self,
        side: &mut dyn Endpoint,
        size: u64,
        check: &mut IntervalCheck,
    ) -> Result<(Option<Figures>, Option<Option<Figures>>, bool), Failure> {
        let (mut server, mut trouble, mut is_whole) = (None, None, true);
        let mut keepalive = Keepalive::new();
        let (connection, watch) = (&mut *self.connection, &mut *self.watch);
        let only_answers = !self.request.plan.client_sends();
        let readable_fd = connection.readable_fd();
        let run = side.run(size, readable_fd.as_ref().map(AsFd::as_fd), &mut |StepProgress { done, intervals }| {
            if trouble.is_some() || !is_whole {
                return false;
            }
            intervals.iter().for_each(|interval| watch.interval(size, interval));
            match keepalive.beat(connection, done) {
                // A server that has sent its figures sends no further progress, so its silence is expected.
                Ok(received) if received.is_empty() && server.is_none() => trouble = connection.silence(),
                Ok(received) => received.into_iter().for_each(|message| match message {
                    Message::Figures(figures) if server.is_none() => server = Some(figures),
                    Message::Interval(interval) if only_answers && server.is_none() => match check.take(&interval) {
                        Ok(()) => watch.interval(size, &interval),
                        Err(what) => trouble = trouble.take().or_else(|| connection.broken::<()>(what).err()),
                    },
                    other => trouble = trouble.take().or_else(|| connection.unexpected::<()>(&other, "figures").err()),
                }),
                Err(failure) => trouble = Some(failure),
            }
            is_whole = watch.progress(size, done);
            // If only the server sends, the client ends its step after the server has ended the step.
            trouble.is_none() && is_whole && !(only_answers && server.is_some())
        });
        self.forward_notes();
        match (run, trouble) {
            (_, Some(failure)) => Err(failure),
            (Ok(client), None) => Ok((client, server, is_whole)),
            (Err(error), None) => match self.connection.arrived() {
                // Both sides may have failed for the same cause, but only one of them may be able to report it.
                Err(theirs @ Failure::Theirs(..)) => Err(Failure::rdma(error.context(theirs.to_string()))),
                _ => Err(Failure::rdma(error)),
            },
        }
    }
}
