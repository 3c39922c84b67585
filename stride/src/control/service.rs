//! A server, which serves one client at a time. Clients that connect during a test receive a report that the server is
//! busy.

use std::io;
use std::net::{Shutdown, TcpListener};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use socket2::SockRef;

use super::failure::Failure;
use super::greeting::{MAX_PENDING, Occupant, accept};
use super::server::{Event, Host, serve_one};
use crate::endpoint::EndpointFactory;
use crate::thread::start_in;

/// A handle that can stop a server from any thread.
#[derive(Debug)]
pub struct Stop(TcpListener);

impl Stop {
    /// Creates a handle for the server that listens on this socket.
    ///
    /// # Errors
    ///
    /// Returns any error of the system.
    pub fn new(listener: &TcpListener) -> io::Result<Self> {
        listener.try_clone().map(Self)
    }

    /// Stops the server, which accepts no further client and ends after the current one.
    pub fn stop(&self) {
        // Ignores the error, because the listener may already be shut down.
        let _ = SockRef::from(&self.0).shutdown(Shutdown::Both);
    }
}

/// Stops the server on drop, also after a panic, because otherwise the accepting thread would never end.
struct StopAtEnd(Stop);

impl Drop for StopAtEnd {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Serves one client after another until the server is stopped. With `is_one_off`, it ends after one test.
///
/// # Errors
///
/// With `is_one_off`, returns the failure of the test. Otherwise each failure is reported as an [`Event`], and the
/// server continues with the next client.
pub fn serve(
    listener: &TcpListener,
    factory: &dyn EndpointFactory,
    host: &Host,
    timeout: Duration,
    is_one_off: bool,
    report: &mut dyn FnMut(Event),
) -> Result<(), Failure> {
    let ours = |error: io::Error| Failure::Ours(error.into());
    let stop = StopAtEnd(Stop::new(listener).map_err(ours)?);
    listener.set_nonblocking(true).map_err(ours)?;
    let occupant = Occupant::default();
    let (sender, clients) = sync_channel(MAX_PENDING);
    std::thread::scope(|scope| {
        let occupant = &occupant;
        let _stop = stop;
        // The channel of clients closes when this thread ends.
        start_in(scope, move || accept(listener, timeout, occupant, &sender))?;
        for (peer, connection) in clients {
            report(Event::Client(peer));
            let mut has_asked = false;
            let result = connection.and_then(|mut connection| {
                // These two values are dropped in reverse order. The connection therefore closes after the server is
                // free, so a client that sees the connection close can reconnect at once.
                let _open = connection.readable_fd();
                let _release = Release(occupant);
                serve_one(connection, factory, host, &mut |event| {
                    has_asked |= matches!(event, Event::Asked(_));
                    report(event);
                })
            });
            if is_one_off && has_asked {
                return result;
            }
            if let Err(failure) = result {
                report(Event::Failed(failure.to_string()));
            }
        }
        Ok(())
    })
}

/// Marks the server as free for the next client on drop.
struct Release<'a>(&'a Occupant);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}
