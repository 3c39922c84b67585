//! A connection of the client, and the calls that its steps consist of.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use sideway::error::VerbError;
use sideway::ibverbs::queue_pair::BasicQueuePair;
use sideway::rdmacm::communication_manager::{ConnectionParameter, EventChannel, Identifier, PortSpace};

use super::arguments::Arguments;
use super::queues::Domain;
use super::step::{Span, Step};

/// What the calls are made with; the same for all connections.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) channel: Arc<EventChannel>,
    source: Option<SocketAddr>,
    destination: SocketAddr,
    timeout: Duration,
    parameter: ConnectionParameter,
    /// From the step in which queue pairs are made.
    pub(crate) domain: Option<Arc<Domain>>,
}

impl Plan {
    pub(crate) fn new(arguments: &Arguments, destination: SocketAddr) -> Result<Self> {
        let mut parameter = ConnectionParameter::new();
        let retries = arguments.retries.min(7);
        parameter.setup_responder_resources(1).setup_initiator_depth(1).setup_retry_count(retries);
        Ok(Self {
            channel: EventChannel::new()?,
            source: arguments.bind.map(|address| SocketAddr::new(address, 0)),
            destination,
            timeout: Duration::from_millis(arguments.timeout.into()),
            parameter,
            domain: None,
        })
    }
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    index: usize,
    id: Option<Arc<Identifier>>,
    qp: Option<BasicQueuePair>,
    /// Of the step that goes on: when its call began.
    began: Option<Instant>,
    /// Of the step that goes on: when its event came, or its call ended where there is none.
    pub(crate) end: Option<Instant>,
    /// How often this step may still be asked for again.
    pub(crate) retries_left: u8,
    /// It has failed, and takes no further step.
    pub(crate) is_out: bool,
}

impl Connection {
    pub(crate) fn new(index: usize) -> Self {
        Self { index, id: None, qp: None, began: None, end: None, retries_left: 0, is_out: false }
    }

    /// Its identifier, unless it has failed.
    pub(crate) fn id_in_play(&self) -> Option<&Arc<Identifier>> {
        self.id.as_ref().filter(|_| !self.is_out)
    }

    /// The times of the step.
    pub(crate) fn span(&self) -> Span {
        Span { began: self.began, ended: self.end }
    }

    pub(crate) fn prepare(&mut self, retries: u8) {
        (self.began, self.end, self.retries_left) = (None, None, retries);
    }

    /// Makes the call of a step, and notes its times.
    pub(crate) fn call(&mut self, step: Step, plan: &Plan) -> Result<(), VerbError> {
        self.began = Some(Instant::now());
        self.call_again(step, plan)?;
        if step.event().is_none() {
            self.end = Some(Instant::now());
        }
        Ok(())
    }

    /// Makes the call of a step.
    pub(crate) fn call_again(&mut self, step: Step, plan: &Plan) -> Result<(), VerbError> {
        if step == Step::CreateId {
            let id = plan.channel.create_id(PortSpace::Tcp)?;
            // By which its events are known.
            id.setup_context(self.index);
            self.id = Some(id);
            return Ok(());
        }
        let Some(id) = &self.id else { return Ok(()) };
        match (step, plan.source, &plan.domain) {
            (Step::Bind, Some(source), _) => id.bind_addr(source),
            // A source that is bound already is not named again.
            (Step::ResolveAddress, ..) => id.resolve_addr(None, plan.destination, plan.timeout),
            (Step::ResolveRoute, ..) => id.resolve_route(plan.timeout),
            (Step::CreateQueuePair, _, Some(domain)) => {
                self.qp = Some(domain.create_qp(id)?);
                Ok(())
            }
            (Step::Connect, ..) => id.connect(&plan.parameter),
            (Step::Disconnect, ..) => {
                let ended = id.disconnect();
                self.qp = None;
                ended
            }
            (Step::Destroy, ..) => {
                // It is left where a step before has failed.
                self.qp = None;
                self.id = None;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
