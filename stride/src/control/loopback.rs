//! Both sides in one process.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use super::client::{Outcome, Watch, measure};
use super::connection::Connection;
use super::failure::Failure;
use super::message::Request;
use super::path::Near;
use super::server::{Host, serve_one};
use crate::endpoint::{EndpointFactory, Role};
use crate::thread::start_in;

/// Shuts the connection down on drop, also after a panic. Closing the socket would not be enough, because a worker
/// thread may have a copy of either socket until it ends.
struct Ending(UnixStream);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// Runs a test against a server that runs on another thread of this process.
///
/// # Errors
///
/// Returns the failure of either side.
pub fn loopback(
    factory: &dyn EndpointFactory,
    request: &Request,
    timeout: Duration,
    watch: &mut dyn Watch,
) -> Result<Outcome, Failure> {
    let no_socket = |error| {
        Failure::Ours(anyhow::Error::new(error).context("cannot create the socket between both sides of this process"))
    };
    let (ours, theirs) = UnixStream::pair().map_err(no_socket)?;
    let end = |of: &UnixStream| of.try_clone().map(Ending).map_err(no_socket);
    let (our_end, their_end) = (end(&ours)?, end(&theirs)?);
    thread::scope(|scope| {
        let _end = our_end;
        start_in(scope, move || {
            let _end = their_end;
            let (connection, _) = Connection::handshake(theirs, Role::Server, timeout)?;
            // The client receives this failure too, and reports it.
            serve_one(connection, factory, &Host::default(), &mut |_| ())
        })?;
        let (connection, _) = Connection::handshake(ours, Role::Client, timeout)?;
        measure(connection, Near::default(), factory, request, watch)
    })
}
