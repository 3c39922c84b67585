//! The side that measures.

use std::os::fd::AsFd;

use super::connection::Connection;
use super::failure::Failure;
use super::interval_check::IntervalCheck;
use super::keepalive::Keepalive;
use super::message::{Done, Message, Offer, Request};
use super::path::{self, Near};
use crate::endpoint::{Counted, Endpoint, EndpointFactory, Glimpse, Path, PeerInfo, PortInfo, Role};
use crate::plan::{NAMED, Room, SWEPT, Transport};
use crate::stats::{Figures, Interval};

/// Who looks on while a test runs.
pub trait Watch {
    /// Both sides are open, and this is the way between them.
    fn met(&mut self, _client: &PortInfo, _server: &PortInfo, _path: &Path) {}

    /// So much of a step is done, of one; `false` ends the test within it, or before it where nothing is.
    fn progress(&mut self, _size: u64, _done: f64) -> bool {
        true
    }

    /// A part of the step of this size is over, which goes on: what this side has seen of it, or the server where this one sees nothing.
    fn interval(&mut self, _size: u64, _interval: &Interval) {}

    /// A step is done.
    fn step(&mut self, _step: &Step) {}

    /// This side has a sentence for the user.
    fn remark(&mut self, _text: &str) {}

    /// The server has a sentence for the user.
    fn note(&mut self, _text: &str) {}
}

/// Nobody.
impl Watch for () {}

/// What came of a size.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Bytes of a message.
    pub size: u64,
    /// What the client has measured.
    pub client: Option<Figures>,
    /// What the server has.
    pub server: Option<Figures>,
    /// By how much counters have changed, where any were asked for.
    pub counters: Option<Counted>,
    /// It was done as planned, and not ended before.
    pub is_whole: bool,
}

/// What came of a test.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// This side.
    pub client: PortInfo,
    /// The other.
    pub server: PortInfo,
    /// The way between them.
    pub path: Path,
    /// A step for each size that was measured.
    pub steps: Vec<Step>,
}

/// Does a test with the server at the other end, who was greeted.
///
/// # Errors
///
/// What failed at either side; the other one is told.
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
        self.connection.send(&Message::Request(Box::new(self.request.clone())))?;
        let mut offer = match self.receive()? {
            Message::Offer(offer) => *offer,
            other => return self.connection.unexpected(&other, "offer"),
        };
        let path = self.path(side.facts(), &offer, near)?;
        let theirs = self.connect(&mut *side, &path)?;
        offer.facts.inline = Some(theirs.inline);
        for (facts, ends) in offer.facts.others.iter_mut().zip(&theirs.others) {
            facts.inline = Some(ends.inline);
        }
        self.watch.met(side.facts(), &offer.facts, &path);
        let mut steps: Vec<Step> = Vec::new();
        let sizes = self.fitting(path.room(&[side.facts(), &offer.facts]));
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
        Ok(Outcome { client: side.facts().clone(), server: offer.facts, path, steps })
    }

    /// The next message, after the notes that came before it.
    fn receive(&mut self) -> Result<Message, Failure> {
        let message = self.connection.receive();
        self.pass_notes();
        message
    }

    fn pass_notes(&mut self) {
        for note in self.connection.notes() {
            self.watch.note(&note);
        }
    }

    fn path(&mut self, client: &PortInfo, offer: &Offer, near: Near) -> Result<Path, Failure> {
        let plan = &self.request.plan;
        let (found, due) = (offer.facts.all().count(), client.all().count());
        if found != due {
            return self.connection.broken(format!("sent {found} ports, expected {due}"));
        }
        let theirs = std::iter::once(&offer.gid_index).chain(&offer.other_gid_indices);
        let ours = plan.placement.client.spots().into_iter().map(|spot| spot.gid_index);
        let asked: Vec<_> = ours.zip(theirs.copied().chain(std::iter::repeat(None))).map(<[_; 2]>::from).collect();
        let path = path::choose_all(client, &offer.facts, &asked, plan, near)?;
        let is_default = !self.request.given.has(&[NAMED, SWEPT]);
        let room = path.room(&[client, &offer.facts]);
        if !is_default || !plan.workload.sizes.iter().any(|size| plan.fits(*size, room)) {
            plan.check_room(room, if self.request.given.has(&[NAMED]) { NAMED } else { SWEPT })?;
        }
        Ok(path)
    }

    /// The sizes; a sweep that nobody gave an end has it where messages have no room any more.
    fn fitting(&mut self, room: Room) -> Vec<u64> {
        let plan = &self.request.plan;
        let (sizes, others): (Vec<u64>, _) = plan.workload.sizes.iter().partition(|size| plan.fits(**size, room));
        if !others.is_empty() {
            let most = plan.limit(room).unwrap_or(u32::MAX);
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

    /// With the server's queue pairs, which this brings back.
    fn connect(&mut self, side: &mut dyn Endpoint, path: &Path) -> Result<PeerInfo, Failure> {
        self.connection.send(&Message::Path(path.clone()))?;
        let ours = side.create_queue_pairs(path)?;
        self.connection.send(&Message::PeerInfo(ours))?;
        let theirs = match self.receive()? {
            Message::PeerInfo(ends) => ends,
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
        let mut told = IntervalCheck::new(&self.request.plan, size);
        let (client, mut server, is_whole) = self.run(side, size, &mut told)?;
        let was_cut = !is_whole;
        // What has no end of its own is whole when the user ends it.
        let is_whole = is_whole || self.request.plan.workload.is_endless;
        self.connection.send(&Message::Done(Done { is_whole }))?;
        while server.is_none() {
            match self.receive()? {
                Message::Progress(_) => {}
                Message::Interval(interval) if !self.request.plan.client_sends() => {
                    told.take(&interval).or_else(|what| self.connection.broken(what))?;
                    self.watch.interval(size, &interval);
                }
                Message::Figures(figures) => server = Some(figures),
                other => return self.connection.unexpected(&other, "figures"),
            }
        }
        let client = self.settle(side, (size, client), was_cut)?;
        let counters = self.count(side)?;
        // Of a step that was cut short not every place has its bytes.
        if self.request.plan.workload.is_validated && is_whole {
            side.check(size).map_err(Failure::rdma)?;
            match self.receive()? {
                Message::Checked => {}
                other => return self.connection.unexpected(&other, "checked"),
            }
        }
        Ok(Step { size, client, server: server.flatten(), counters, is_whole })
    }

    /// The figures of this side, once all that the server has sent has had the time to come.
    fn settle(
        &mut self,
        side: &mut dyn Endpoint,
        (size, figures): (u64, Option<Figures>),
        was_cut: bool,
    ) -> Result<Option<Figures>, Failure> {
        let (mut keepalive, mut trouble) = (Keepalive::new(), None);
        let (connection, watch) = (&mut *self.connection, &mut *self.watch);
        let settled = side.settle(size, figures, was_cut, &mut || {
            // What the server says now is of what follows.
            trouble = trouble.take().or_else(|| keepalive.say(connection, 1.0).err());
            trouble.is_none() && watch.progress(size, 1.0)
        });
        match trouble {
            Some(failure) => Err(failure),
            None => settled.map_err(Failure::rdma),
        }
    }

    /// What the counters of both sides say, where any are asked for.
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

    /// What this side has measured, and what the server has, if it was done first; and whether the user has let both do all.
    #[expect(clippy::type_complexity, reason = "the server's result contradicts what the client measured")]
    fn run(
        &mut self,
        side: &mut dyn Endpoint,
        size: u64,
        told: &mut IntervalCheck,
    ) -> Result<(Option<Figures>, Option<Option<Figures>>, bool), Failure> {
        let (mut server, mut trouble, mut is_whole) = (None, None, true);
        let mut keepalive = Keepalive::new();
        let (connection, watch) = (&mut *self.connection, &mut *self.watch);
        let only_answers = !self.request.plan.client_sends();
        let readable_fd = connection.readable_fd();
        let run = side.run(size, readable_fd.as_ref().map(AsFd::as_fd), &mut |Glimpse { done, intervals }| {
            if trouble.is_some() || !is_whole {
                return false;
            }
            intervals.iter().for_each(|interval| watch.interval(size, interval));
            match keepalive.beat(connection, done) {
                // Who has told its figures says nothing more.
                Ok(heard) if heard.is_empty() && server.is_none() => trouble = connection.silence(),
                Ok(heard) => heard.into_iter().for_each(|message| match message {
                    Message::Figures(figures) if server.is_none() => server = Some(figures),
                    Message::Interval(interval) if only_answers && server.is_none() => match told.take(&interval) {
                        Ok(()) => watch.interval(size, &interval),
                        Err(what) => trouble = trouble.take().or_else(|| connection.broken::<()>(what).err()),
                    },
                    other => trouble = trouble.take().or_else(|| connection.unexpected::<()>(&other, "figures").err()),
                }),
                Err(failure) => trouble = Some(failure),
            }
            is_whole = watch.progress(size, done);
            // Who only answers is done when the other side is.
            trouble.is_none() && is_whole && !(only_answers && server.is_some())
        });
        self.pass_notes();
        match (run, trouble) {
            (_, Some(failure)) => Err(failure),
            (Ok(client), None) => Ok((client, server, is_whole)),
            (Err(error), None) => match self.connection.arrived() {
                // Both may have failed of the same cause, which only one of them sees.
                Err(theirs @ Failure::Theirs(..)) => Err(Failure::rdma(error.context(theirs.to_string()))),
                _ => Err(Failure::rdma(error)),
            },
        }
    }
}
