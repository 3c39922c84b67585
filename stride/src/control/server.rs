//! The side that serves.

use std::os::fd::AsFd;
use std::thread::sleep;

use anyhow::anyhow;

use super::connection::Connection;
use super::failure::Failure;
use super::keepalive::{Keepalive, LOOK};
use super::message::{Done, Message, Offer, Request};
use super::path;
use crate::endpoint::{Endpoint, EndpointFactory, Path, PortInfo, Role};
use crate::plan::{Given, Plan, PortSelector, SideConfig};
use crate::stats::Figures;

/// What a server was given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Host {
    /// Where it stands, as far as that was said to it.
    pub place: SideConfig,
    /// The test that it was given, for comparison.
    pub test: Option<(Plan, Given)>,
}

/// What happens at a server.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Somebody has come, from this address.
    Client(String),
    /// It wants this.
    Asked(Box<Plan>),
    /// A sentence for the user, which the client has also got.
    Note(String),
    /// Both sides are connected: this one, and the way to the other.
    Met(Box<PortInfo>, Path),
    /// A step is done, of this size.
    Step(u64),
    /// The client has ended a step of this size before its end.
    Cut(u64),
    /// The client has all that it wanted.
    End,
    /// This went wrong with the client.
    Failed(String),
}

/// Serves the client at the other end, who was greeted. Whether it has asked for a test is known from the events.
///
/// # Errors
///
/// What failed at either side; the other one is told.
pub fn serve_one(
    mut connection: Connection,
    factory: &dyn EndpointFactory,
    host: &Host,
    tell: &mut dyn FnMut(Event),
) -> Result<(), Failure> {
    let served = Server { connection: &mut connection, factory, host, tell }.test();
    if let Err(failure) = &served {
        connection.part(failure);
    }
    served
}

struct Server<'a> {
    connection: &'a mut Connection,
    factory: &'a dyn EndpointFactory,
    host: &'a Host,
    tell: &'a mut dyn FnMut(Event),
}

impl Server<'_> {
    fn test(&mut self) -> Result<(), Failure> {
        let Request { mut plan, given } = match self.connection.receive()? {
            Message::Request(request) => *request,
            other => return self.connection.unexpected(&other, "request"),
        };
        (self.tell)(Event::Asked(Box::new(plan.clone())));
        self.say_differences(&plan, &given)?;
        plan.check()?;
        self.stand_here(&mut plan, &given)?;
        let mut side = self.factory.open(&plan, &plan.placement.server, Role::Server)?;
        let other_gid_indices = plan.placement.server.others.iter().map(|spot| spot.gid_index).collect();
        let offer =
            Offer { facts: side.facts().clone(), gid_index: plan.placement.server.gid_index, other_gid_indices };
        self.connection.send(&Message::Offer(Box::new(offer)))?;
        let path = self.connect(&mut *side, &plan)?;
        (self.tell)(Event::Met(Box::new(side.facts().clone()), path.clone()));
        loop {
            match self.connection.receive()? {
                Message::Size(size)
                    if plan.workload.sizes.contains(&size) && plan.fits(size, path.room(&[side.facts()])) =>
                {
                    self.step(&mut *side, &plan, size)?;
                }
                Message::Size(size) => {
                    return self
                        .connection
                        .broken(format!("requests size {size}, which was not in the plan or does not fit"));
                }
                // It looks for what this side has sent.
                Message::Progress(_) if plan.looks_for_arrivals() && plan.server_sends() => {}
                Message::End => break,
                other => return self.connection.unexpected(&other, "size"),
            }
        }
        side.end();
        (self.tell)(Event::End);
        Ok(())
    }

    /// What the client leaves open is as this server was started.
    fn stand_here(&mut self, plan: &mut Plan, given: &Given) -> Result<(), Failure> {
        let mut own = self.host.place.clone();
        if plan.attributes.uses_rdma_cm && own.gid_index.take().is_some() {
            self.note(
                "the server's --gid-index has no effect with --rdma-cm, which selects the GID by address".to_owned(),
            )?;
        }
        if plan.attributes.uses_rdma_cm && own.pkey_index.take().is_some() {
            self.note(
                "the server's --pkey-index has no effect with --rdma-cm, which selects the partition".to_owned(),
            )?;
        }
        if plan.attributes.uses_rdma_cm && own.dlid.take().is_some() {
            self.note("the server's --dlid has no effect with --rdma-cm, which resolves the path".to_owned())?;
        }
        own = self.with_ports(own, &plan.placement.server)?;
        plan.placement.server = plan.placement.server.clone().or(&own);
        // Where the client knows of the memory it has none inline either.
        let is_gpu = plan.placement.server.memory.as_ref().is_some_and(|memory| memory.cuda().is_some());
        if let Some(inline @ 1..) = plan.queues.inline.filter(|_| is_gpu && !given.has(&["--inline"])) {
            plan.queues.inline = None;
            self.note(format!("the server's --use-cuda disables the default of {inline} bytes inline on its side"))?;
        }
        // It was right before.
        let options = own.options().join(" ");
        plan.check()
            .map_err(|why| anyhow!("it was started with {options}, which conflicts with this test: {why}").into())
    }

    /// The place that this server was given, for a test over as many ports as its client asks for.
    fn with_ports(&mut self, own: SideConfig, asked: &SideConfig) -> Result<SideConfig, Failure> {
        let (count, names) = (asked.count(), own.port_options());
        match own.count() {
            there if there == count => Ok(own),
            1 => {
                if own.device.is_some() && asked.device.is_none() {
                    let is_one = asked.spots().windows(2).all(|pair| pair[0].port == pair[1].port);
                    let way = "so all of them use one port; to use several, start the server with -d mlx5_0,mlx5_1, or give the \
                     client --remote-device";
                    let way = if is_one { format!(", {way}") } else { String::new() };
                    self.note(format!("the server was started with {names}, which applies to all {count} ports of the test{way}"))?;
                }
                Ok(own.spread(count))
            }
            // The client has named others.
            _ if asked.device.is_some() => Ok(own.at(vec![PortSelector::default()]).spread(count)),
            _ if count == 1 => {
                self.note(format!("the server was started with {names}, and the test uses one port: the first one"))?;
                Ok(own.first())
            }
            _ => Err(anyhow!(
                "it was started with {names}, and the test uses {count} ports; start it with {count}, with one, or with none"
            )
            .into()),
        }
    }

    fn say_differences(&mut self, plan: &Plan, given: &Given) -> Result<(), Failure> {
        let mut notes = plan.placement.server.differences(&self.host.place);
        if let Some((own, own_given)) = &self.host.test {
            notes.extend(plan.differences(given, own, own_given));
        }
        notes.into_iter().try_for_each(|note| self.note(note))
    }

    fn note(&mut self, note: String) -> Result<(), Failure> {
        self.connection.send(&Message::Note(note.clone()))?;
        (self.tell)(Event::Note(note));
        Ok(())
    }

    fn connect(&mut self, side: &mut dyn Endpoint, plan: &Plan) -> Result<Path, Failure> {
        let path = match self.connection.receive()? {
            Message::Path(path) => path,
            other => return self.connection.unexpected(&other, "path"),
        };
        path::check(&path, side.facts()).or_else(|what| self.connection.broken(what))?;
        let ours = side.create_queue_pairs(&path)?;
        // The client sends before it receives: where both did, each could wait for the other to take in what is long.
        let theirs = match self.connection.receive()? {
            Message::PeerInfo(ends) => ends,
            other => return self.connection.unexpected(&other, "ends"),
        };
        self.connection.send(&Message::PeerInfo(ours))?;
        path::check_ends(&theirs, &path, plan).or_else(|what| self.connection.broken(what))?;
        side.connect(&path, &theirs).map_err(|error| self.connection.failed(error))?;
        self.connection.send(&Message::Connected)?;
        match self.connection.receive()? {
            Message::Connected => Ok(path),
            other => self.connection.unexpected(&other, "connected"),
        }
    }

    /// The figures of a step, once all that the client has sent has had the time to come.
    fn settle(
        &mut self,
        side: &mut dyn Endpoint,
        plan: &Plan,
        (size, figures): (u64, Option<Figures>),
        done: &mut Option<Done>,
    ) -> Result<Option<Figures>, Failure> {
        let (connection, mut keepalive, mut trouble) = (&mut *self.connection, Keepalive::new(), None);
        let mut hear = |done: &mut Option<Done>| {
            match keepalive.beat(connection, 1.0) {
                Ok(heard) if heard.is_empty() && done.is_none() => {
                    trouble = trouble.take().or_else(|| connection.silence())
                }
                Ok(heard) => heard.into_iter().for_each(|message| match message {
                    Message::Done(theirs) if done.is_none() => *done = Some(theirs),
                    other => trouble = connection.unexpected::<()>(&other, "done").err(),
                }),
                Err(failure) => trouble = Some(failure),
            }
            trouble.is_none()
        };
        if plan.looks_for_arrivals() && plan.workload.direction.is_both() {
            // The client goes on to its own end.
            while done.is_none() && hear(done) {
                sleep(LOOK);
            }
        }
        let was_cut = plan.workload.is_endless || done.is_some_and(|done| !done.is_whole);
        let settled = side.settle(size, figures, was_cut, &mut || hear(done));
        match trouble {
            Some(failure) => Err(failure),
            None => settled.map_err(Failure::rdma),
        }
    }

    fn step(&mut self, side: &mut dyn Endpoint, plan: &Plan, size: u64) -> Result<(), Failure> {
        side.prepare(size).map_err(Failure::rdma)?;
        self.connection.send(&Message::Ready)?;
        match self.connection.receive()? {
            Message::Go => {}
            other => return self.connection.unexpected(&other, "go"),
        }
        // A side that sends messages of its own goes on to the last one, even where the client is done with its own.
        let ends_alone =
            (plan.workload.direction.is_reversed() || plan.workload.direction.is_both()) && !plan.workload.is_endless;
        // The client would see nothing before the figures.
        let tells = plan.workload.direction.is_reversed() && !plan.workload.operation.takes_receive();
        let (mut done, mut trouble) = (None, None);
        let mut keepalive = Keepalive::new();
        let connection = &mut *self.connection;
        let readable_fd = connection.readable_fd();
        let run = side.run(size, readable_fd.as_ref().map(AsFd::as_fd), &mut |part| {
            for interval in part.intervals.iter().filter(|_| tells) {
                trouble = trouble.take().or_else(|| connection.send(&Message::Interval(*interval)).err());
            }
            match keepalive.beat(connection, part.done) {
                Ok(heard) if heard.is_empty() && done.is_none() => {
                    trouble = trouble.take().or_else(|| connection.silence());
                }
                Ok(heard) => heard.into_iter().for_each(|message| match message {
                    Message::Done(theirs) if done.is_none() => done = Some(theirs),
                    other => trouble = connection.unexpected::<()>(&other, "done").err(),
                }),
                Err(failure) => trouble = Some(failure),
            }
            trouble.is_none() && done.is_none_or(|done| done.is_whole && ends_alone)
        });
        if let Some(failure) = trouble {
            return Err(failure);
        }
        let figures = self.settle(side, plan, (size, run.map_err(Failure::rdma)?), &mut done)?;
        self.connection.send(&Message::Figures(figures))?;
        while done.is_none() {
            match self.connection.receive()? {
                Message::Progress(_) => {}
                Message::Done(theirs) => done = Some(theirs),
                other => return self.connection.unexpected(&other, "done"),
            }
        }
        let is_whole = done.is_some_and(|done| done.is_whole);
        if !plan.sampling.counters.is_empty() {
            self.connection.send(&Message::Counted(side.counted()))?;
        }
        if plan.workload.is_validated && is_whole {
            side.check(size).map_err(Failure::rdma)?;
            self.connection.send(&Message::Checked)?;
        }
        (self.tell)(if is_whole { Event::Step(size) } else { Event::Cut(size) });
        Ok(())
    }
}
