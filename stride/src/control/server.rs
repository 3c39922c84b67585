//! The server's part of the control channel: serves the requests of a client.

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

/// Options of the server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Host {
    /// The options for device and memory that the server's user gave.
    pub config: SideConfig,
    /// The test that the server's user gave, which is only compared with the client's test.
    pub test: Option<(Plan, Given)>,
}

/// Events of a server.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A client has connected. The text is its address.
    Client(String),
    /// The client has requested this test.
    Asked(Box<Plan>),
    /// The server has a remark for its user, which the client receives too.
    Note(String),
    /// Both sides are connected. The event contains this side's port and the path.
    Met(Box<PortInfo>, Path),
    /// A step of this size has run to its end.
    Step(u64),
    /// The client has ended a step of this size early.
    Cut(u64),
    /// The client has ended the test.
    End,
    /// The test failed.
    Failed(String),
}

/// Serves the client at the other end of the connection, after the handshake. The reported events show whether the
/// client has requested a test.
///
/// # Errors
///
/// Returns the failure of either side. If this side failed, the client also receives the failure.
pub fn serve_one(
    mut connection: Connection,
    factory: &dyn EndpointFactory,
    host: &Host,
    report: &mut dyn FnMut(Event),
) -> Result<(), Failure> {
    let served = Server { connection: &mut connection, factory, host, report }.test();
    if let Err(failure) = &served {
        connection.part(failure);
    }
    served
}

struct Server<'a> {
    connection: &'a mut Connection,
    factory: &'a dyn EndpointFactory,
    host: &'a Host,
    report: &'a mut dyn FnMut(Event),
}

impl Server<'_> {
    fn test(&mut self) -> Result<(), Failure> {
        let Request { mut plan, given } = match self.connection.receive()? {
            Message::Request(request) => *request,
            other => return self.connection.unexpected(&other, "request"),
        };
        (self.report)(Event::Asked(Box::new(plan.clone())));
        self.report_differences(&plan, &given)?;
        plan.check()?;
        self.apply_options(&mut plan, &given)?;
        let mut side = self.factory.open(&plan, &plan.placement.server, Role::Server)?;
        let other_gid_indices = plan.placement.server.others.iter().map(|spot| spot.gid_index).collect();
        let offer = Offer {
            port_info: side.port_info().clone(),
            gid_index: plan.placement.server.gid_index,
            other_gid_indices,
        };
        self.connection.send(&Message::Offer(Box::new(offer)))?;
        let path = self.connect(&mut *side, &plan)?;
        (self.report)(Event::Met(Box::new(side.port_info().clone()), path.clone()));
        loop {
            match self.connection.receive()? {
                Message::Size(size)
                    if plan.workload.sizes.contains(&size) && plan.fits(size, path.limits(&[side.port_info()])) =>
                {
                    self.step(&mut *side, &plan, size)?;
                }
                Message::Size(size) => {
                    return self
                        .connection
                        .broken(format!("requests size {size}, which was not in the plan or does not fit"));
                }
                // The client still waits for messages of this side to arrive, and sends progress meanwhile.
                Message::Progress(_) if plan.looks_for_arrivals() && plan.server_sends() => {}
                Message::End => break,
                other => return self.connection.unexpected(&other, "size"),
            }
        }
        side.end();
        (self.report)(Event::End);
        Ok(())
    }

    /// Fills in the values that the client left open with the options of this server.
    fn apply_options(&mut self, plan: &mut Plan, given: &Given) -> Result<(), Failure> {
        let mut own = self.host.config.clone();
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
        // Once the server has reported that its messages are in GPU memory, the client sends nothing inline either.
        let is_gpu = plan.placement.server.memory.as_ref().is_some_and(|memory| memory.cuda().is_some());
        if let Some(inline @ 1..) = plan.queues.inline.filter(|_| is_gpu && !given.has(&["--inline"])) {
            plan.queues.inline = None;
            self.note(format!("the server's --use-cuda disables the default of {inline} bytes inline on its side"))?;
        }
        // The plan was valid before it was changed, so the server's options cause the conflict.
        let options = own.options().join(" ");
        plan.check()
            .map_err(|why| anyhow!("it was started with {options}, which conflicts with this test: {why}").into())
    }

    /// Returns this server's configuration for as many ports as the client requests.
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
            // The client has named devices of the server, so those that this server was started with do not apply.
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

    fn report_differences(&mut self, plan: &Plan, given: &Given) -> Result<(), Failure> {
        let mut notes = plan.placement.server.differences(&self.host.config);
        if let Some((own, own_given)) = &self.host.test {
            notes.extend(plan.differences(given, own, own_given));
        }
        notes.into_iter().try_for_each(|note| self.note(note))
    }

    fn note(&mut self, note: String) -> Result<(), Failure> {
        self.connection.send(&Message::Note(note.clone()))?;
        (self.report)(Event::Note(note));
        Ok(())
    }

    fn connect(&mut self, side: &mut dyn Endpoint, plan: &Plan) -> Result<Path, Failure> {
        let path = match self.connection.receive()? {
            Message::Path(path) => path,
            other => return self.connection.unexpected(&other, "path"),
        };
        path::check(&path, side.port_info()).or_else(|what| self.connection.broken(what))?;
        let ours = side.create_queue_pairs(&path)?;
        // Receives before it sends, because the client sends before it receives. If both sides sent first and the
        // messages were long, each side could block while the other does not read.
        let theirs = match self.connection.receive()? {
            Message::PeerInfo(peer_info) => peer_info,
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

    /// Waits until late messages of the client have had time to arrive, and returns the server's figures.
    fn settle(
        &mut self,
        side: &mut dyn Endpoint,
        plan: &Plan,
        size: u64,
        figures: Option<Figures>,
        done: &mut Option<Done>,
    ) -> Result<Option<Figures>, Failure> {
        let (connection, mut keepalive, mut trouble) = (&mut *self.connection, Keepalive::new(), None);
        let mut receive = |done: &mut Option<Done>| {
            match keepalive.beat(connection, 1.0) {
                Ok(received) if received.is_empty() && done.is_none() => {
                    trouble = trouble.take().or_else(|| connection.silence())
                }
                Ok(received) => received.into_iter().for_each(|message| match message {
                    Message::Done(theirs) if done.is_none() => *done = Some(theirs),
                    other => trouble = connection.unexpected::<()>(&other, "done").err(),
                }),
                Err(failure) => trouble = Some(failure),
            }
            trouble.is_none()
        };
        if plan.looks_for_arrivals() && plan.workload.direction.is_both() {
            // The client may still be sending, so waits for the message that it has finished.
            while done.is_none() && receive(done) {
                sleep(LOOK);
            }
        }
        let was_cut = plan.workload.is_endless || done.is_some_and(|done| !done.is_whole);
        let settled = side.settle(size, figures, was_cut, &mut || receive(done));
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
        // A side that sends messages of its own continues to the last one, even if the client has finished.
        let ends_alone =
            (plan.workload.direction.is_reversed() || plan.workload.direction.is_both()) && !plan.workload.is_endless;
        // The server reports intervals in this case, because otherwise the client would receive nothing before the
        // figures.
        let reports = plan.workload.direction.is_reversed() && !plan.workload.operation.takes_receive();
        let (mut done, mut trouble) = (None, None);
        let mut keepalive = Keepalive::new();
        let connection = &mut *self.connection;
        let readable_fd = connection.readable_fd();
        let run = side.run(size, readable_fd.as_ref().map(AsFd::as_fd), &mut |part| {
            for interval in part.intervals.iter().filter(|_| reports) {
                trouble = trouble.take().or_else(|| connection.send(&Message::Interval(*interval)).err());
            }
            match keepalive.beat(connection, part.done) {
                Ok(received) if received.is_empty() && done.is_none() => {
                    trouble = trouble.take().or_else(|| connection.silence());
                }
                Ok(received) => received.into_iter().for_each(|message| match message {
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
        let figures = self.settle(side, plan, size, run.map_err(Failure::rdma)?, &mut done)?;
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
        (self.report)(if is_whole { Event::Step(size) } else { Event::Cut(size) });
        Ok(())
    }
}
