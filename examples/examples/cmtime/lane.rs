//! The connections of one thread, which makes their calls and takes their events, from a channel of its own.

use std::time::{Duration, Instant};

use anyhow::Result;
use sideway::rdmacm::communication_manager::{Event, EventKind, EventType};

use super::arguments::Arguments;
use super::connection::{Connection, Plan};
use super::failures::Failures;
use super::step::Step;

/// So many calls are made before it looks for events.
const CALLS_AT_ONCE: usize = 8;

#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) plan: Plan,
    connections: Vec<Connection>,
    /// How often an address or a route is asked for again.
    retries: u8,
    patience: Option<Duration>,
    /// Connections whose event is still to come.
    waiting: usize,
    failures: Failures,
}

impl Lane {
    pub(crate) fn new(plan: Plan, count: usize, arguments: &Arguments) -> Self {
        Self {
            plan,
            connections: (0..count).map(Connection::new).collect(),
            retries: arguments.retries,
            patience: arguments.patience.0,
            waiting: 0,
            failures: Failures::default(),
        }
    }

    pub(crate) fn connections(&self) -> &[Connection] {
        &self.connections
    }

    pub(crate) fn into_failures(self) -> Failures {
        self.failures
    }

    /// Forgets the times of the step before.
    pub(crate) fn prepare(&mut self) {
        for connection in &mut self.connections {
            connection.prepare(self.retries);
        }
    }

    /// Takes a step for all connections that are still in; all are destroyed.
    pub(crate) fn take(&mut self, step: Step) -> Result<()> {
        for index in 0..self.connections.len() {
            self.call(index, step);
            if index % CALLS_AT_ONCE == CALLS_AT_ONCE - 1 && self.waiting > 0 {
                while let Some(event) = self.plan.channel.try_get_cm_event()? {
                    self.handle(step, &event);
                }
            }
        }
        while self.waiting > 0 {
            match self.plan.channel.get_cm_event(self.patience) {
                Ok(event) => self.handle(step, &event),
                Err(error) if error.errno().raw() == libc::ETIMEDOUT => self.give_up(step),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn call(&mut self, index: usize, step: Step) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        if connection.is_out && step != Step::Destroy {
            return;
        }
        match connection.call(step, &self.plan) {
            Ok(()) => self.waiting += usize::from(step.event().is_some()),
            Err(error) => self.fail(index, step, &error),
        }
    }

    fn handle(&mut self, step: Step, event: &Event) {
        let Some(index) = event.cm_id().get_context::<usize>().map(|index| *index) else { return };
        let Some(connection) = self.connections.get_mut(index) else { return };
        let is_awaited = !connection.is_out && connection.end.is_none();
        if step.event() == Some(event.event_type()) && is_awaited {
            connection.end = Some(Instant::now());
            self.waiting -= 1;
        } else if !connection.is_out && ends(event) && !self.has_asked_again(index, event) {
            self.waiting -= usize::from(is_awaited);
            self.fail(index, step, event);
        }
    }

    /// Asks again for what may have been lost.
    fn has_asked_again(&mut self, index: usize, event: &Event) -> bool {
        let Some(connection) = self.connections.get_mut(index).filter(|connection| connection.retries_left > 0) else {
            return false;
        };
        let again = match event.event_type() {
            EventType::AddressError => Step::ResolveAddress,
            EventType::RouteError => Step::ResolveRoute,
            _ => return false,
        };
        connection.retries_left -= 1;
        connection.call_again(again, &self.plan).is_ok()
    }

    fn fail(&mut self, index: usize, step: Step, why: impl std::fmt::Display) {
        if let Some(connection) = self.connections.get_mut(index) {
            connection.is_out = true;
        }
        self.failures.count(step, why);
    }

    /// No event came for so long that none will.
    fn give_up(&mut self, step: Step) {
        let patience = self.patience.unwrap_or(Duration::MAX).as_secs_f64();
        for index in 0..self.connections.len() {
            let is_awaited = |connection: &Connection| !connection.is_out && connection.end.is_none();
            if self.connections.get(index).is_some_and(is_awaited) {
                self.fail(index, step, format_args!("nothing happened for {patience} s"));
            }
        }
        self.waiting = 0;
    }
}

/// Whether no other event of the connection follows, that a step waits for. One that ends before its time was ended by the
/// server.
fn ends(event: &Event) -> bool {
    matches!(
        event.kind(),
        EventKind::AddressError(_)
            | EventKind::RouteError(_)
            | EventKind::ConnectError(_)
            | EventKind::Unreachable(_)
            | EventKind::Rejected(_)
            | EventKind::Disconnected(_)
            | EventKind::DeviceRemoval
    )
}
