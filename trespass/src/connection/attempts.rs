//! The transports that an attempt to connect tries one after the other.

use std::io;
use std::net::SocketAddr;

use super::Connection;
use crate::worker::{Handle, Kind};

/// The transports that are left, and the reason why an earlier one failed.
#[derive(Debug)]
pub(crate) struct Attempts<'h> {
    handle: &'h Handle,
    address: SocketAddr,
    left: &'static [Kind],
    /// Whether the first transport was already tried over another device.
    has_crossed: bool,
    reason: Option<io::Error>,
}

impl<'h> Attempts<'h> {
    pub(crate) fn new(handle: &'h Handle, address: SocketAddr) -> io::Result<Self> {
        Ok(Self { handle, address, left: handle.with(|worker| worker.candidates())?, has_crossed: false, reason: None })
    }

    /// Starts an attempt over the next transport. Returns the connection, which is not established yet, and the number
    /// of transports that share the remaining time; or `None` if no transport is left.
    pub(crate) fn start(&mut self) -> Option<(io::Result<Connection>, u32)> {
        let kind = *self.left.first()?;
        let id = self.handle.with(|worker| worker.connect(kind, self.address)).and_then(|id| id);
        Some((id.map(|id| Connection::new(self.handle.clone(), id)), self.left.len() as u32))
    }

    /// Takes the outcome of an attempt. Returns the result, or `None` if the next transport is to be tried.
    pub(crate) fn end(&mut self, outcome: io::Result<Connection>) -> Option<io::Result<Connection>> {
        if let Err(error) = &outcome
            && error.kind() == io::ErrorKind::CrossesDevices
            && !self.has_crossed
        {
            // The worker now uses the other device.
            self.has_crossed = true;
            return None;
        }
        self.left = self.left.get(1..).unwrap_or_default();
        let error = match (outcome, self.reason.take()) {
            (Ok(connection), Some(reason)) => {
                let noted = self.handle.with(|worker| worker.note_fallback(connection.id(), self.address, &reason));
                return Some(noted.map(|()| connection));
            }
            (Ok(connection), None) => return Some(Ok(connection)),
            // The peer is reachable and has refused the connection, so it would refuse it over another transport too.
            (Err(error), _) if error.kind() == io::ErrorKind::Unsupported => error,
            (Err(error), Some(reason)) => {
                io::Error::new(error.kind(), format!("{error}; over RDMA before that: {reason}"))
            }
            (Err(error), None) if !self.left.is_empty() => {
                self.reason = Some(error);
                return None;
            }
            (Err(error), None) => error,
        };
        Some(Err(error))
    }
}
