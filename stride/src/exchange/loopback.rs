//! Both sides in one process.

use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use super::client::{Outcome, Watch, measure};
use super::connection::Connection;
use super::failure::Failure;
use super::message::Request;
use super::path::Near;
use super::server::{Host, serve_one};
use crate::fabric::{Fabric, Role};

/// Does a test with a server in a thread of this process.
///
/// # Errors
///
/// What failed at either side.
pub fn loopback(
    fabric: &dyn Fabric,
    request: &Request,
    timeout: Duration,
    watch: &mut dyn Watch,
) -> Result<Outcome, Failure> {
    let (ours, theirs) = UnixStream::pair()
        .map_err(|error| Failure::Ours(anyhow::Error::new(error).context("no socket for both sides")))?;
    thread::scope(|scope| {
        scope.spawn(move || {
            let (connection, _) = Connection::greet(theirs, Role::Server, timeout)?;
            // What fails here the client is told, and tells.
            serve_one(connection, fabric, &Host::default(), &mut |_| ())
        });
        let (connection, _) = Connection::greet(ours, Role::Client, timeout)?;
        measure(connection, Near::default(), fabric, request, watch)
    })
}
