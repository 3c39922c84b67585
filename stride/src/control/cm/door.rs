//! The server's end: it listens, and looks at who comes.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use sideway::rdmacm::{ConnectCause, ConnectStep, ConnectionParameter, CreateEventChannelError, Request};

use super::hail::{Hail, Refusal};
use super::link::Link;
use super::make_ready;
use super::stream::Stream;
use crate::control::options::Family;

/// How long the server waits where the system has nothing for another client.
const PAUSE: Duration = Duration::from_millis(100);

/// How long who has asked for a connection may take to take it, at most: the kernel says it several times within that, some four seconds apart.
pub(in crate::control) const PATIENCE: Duration = Duration::from_secs(15);

/// How many times in a row nobody can be taken in, for another reason than a lack of descriptors, until the listener is given up.
const MOST_FAILURES: u32 = 20;

/// Where clients of rdma_cm come.
#[derive(Debug)]
pub(in crate::control) struct Listener(sideway::rdmacm::Listener);

impl Listener {
    /// Listens at all addresses of a family, or of both. Those who come may take so long to take their connection.
    pub(in crate::control) fn bind(port: u16, family: Option<Family>, timeout: Duration) -> Result<Self> {
        make_ready()?;
        let four = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
        let six = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
        let bind = |address: SocketAddr, is_af_only| {
            let mut builder = sideway::rdmacm::Listener::builder();
            builder.setup_timeout(timeout.min(PATIENCE));
            if address.is_ipv6() {
                builder.setup_af_only(is_af_only);
            }
            builder.bind(address)
        };
        let bound = match family {
            Some(Family::V4) => bind(four, false),
            Some(Family::V6) => bind(six, true),
            // Where there is no IPv6 the other is enough.
            None => bind(six, false).or_else(|_| bind(four, false)),
        };
        Ok(Self(bound.with_context(|| format!("port {port} of rdma_cm cannot be listened at"))?))
    }

    /// Where it listens.
    #[cfg(test)]
    pub(in crate::control) fn port(&self) -> u16 {
        self.0.local_address().port()
    }

    /// Waits for the next who wants to connect; none where the TCP listener was shut down, or where nobody will come any more.
    pub(in crate::control) fn next(&self, stop: &TcpListener) -> Option<Caller> {
        let mut failures = Failures::default();
        loop {
            // Also where there is always somebody who waits.
            if self.sleep(stop, Duration::ZERO)? {
                return None;
            }
            match self.0.accept(Some(Duration::ZERO)) {
                Ok(request) => return Some(Caller(request)),
                Err(error) if error.is_timed_out() => {
                    failures = Failures::default();
                    if self.sleep(stop, Duration::from_secs(1))? {
                        return None;
                    }
                }
                // Who came has gone meanwhile, or no descriptor is left.
                Err(error) => {
                    let is_gone = matches!(error.cause(), ConnectCause::DeviceRemoval);
                    // What fails later is of who came, and not of the listener.
                    let is_own = error.step() == ConnectStep::AwaitRequest;
                    if is_gone || is_own && failures.are_enough_with(errno(error.cause())) {
                        log::warn!("nobody comes over rdma_cm any more, and over TCP as before: {error}");
                        return None;
                    }
                    log::debug!("{error}");
                    thread::sleep(PAUSE);
                }
            }
        }
    }

    /// Sleeps until somebody comes; whether the TCP listener was shut down. None where that cannot be.
    fn sleep(&self, stop: &TcpListener, time: Duration) -> Option<bool> {
        let channel = self.0.event_channel();
        // Of the TCP listener nothing is asked: that it was shut down is told in any case.
        let mut both =
            [PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::IN), PollFd::new(stop, PollFlags::empty())];
        let time = Timespec::try_from(time).ok();
        match poll(&mut both, time.as_ref()) {
            Ok(_) => Some(both.last().is_some_and(|stop| !stop.revents().is_empty())),
            Err(Errno::INTR) => Some(false),
            Err(error) => {
                log::warn!("nobody comes over rdma_cm any more, and over TCP as before: {error}");
                None
            }
        }
    }
}

/// What the system has said, where it has.
fn errno(cause: &ConnectCause) -> Option<i32> {
    match cause {
        ConnectCause::Verb(error) | ConnectCause::Channel(CreateEventChannelError::Verb(error)) => {
            Some(error.errno().raw())
        }
        _ => None,
    }
}

/// Failures of a listener in a row.
#[derive(Debug, Default)]
struct Failures(u32);

impl Failures {
    /// Whether nothing more is to be hoped for, after one more of which the system has said this.
    fn are_enough_with(&mut self, errno: Option<i32>) -> bool {
        match errno {
            // Descriptors and memory may be there again.
            Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => false,
            // The device is not.
            Some(libc::EIO | libc::ENODEV) => true,
            _ => {
                self.0 += 1;
                self.0 >= MOST_FAILURES
            }
        }
    }
}

/// Who wants to connect.
pub(in crate::control) struct Caller(Request);

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.peer_address() {
            Some(address) => address.ip().to_canonical().fmt(f),
            None => f.write_str("somebody"),
        }
    }
}

impl Caller {
    fn reject(self, why: &Refusal) {
        if let Err(error) = self.0.reject(&why.bytes()) {
            log::debug!("{error}");
        }
    }

    /// Looks at what it says of itself.
    ///
    /// # Errors
    ///
    /// A sentence, where it is no client: it is sent away with another.
    pub(in crate::control) fn look(self) -> Result<Client, String> {
        match Hail::read(self.0.private_data()) {
            Ok(theirs) => Ok(Client { whom: self.to_string(), caller: self, theirs }),
            Err(strange) => {
                let text = format!("{self} connects by rdma_cm, and is {}", strange.what());
                self.reject(&Refusal::No(strange.refusal()));
                Err(text)
            }
        }
    }
}

/// A client that wants to connect.
pub(in crate::control) struct Client {
    caller: Caller,
    whom: String,
    theirs: Hail,
}

impl Client {
    /// Its address.
    pub(in crate::control) fn whom(&self) -> &str {
        &self.whom
    }

    /// Says that the server has too much to do.
    pub(in crate::control) fn refuse(self, why: String) {
        self.caller.reject(&Refusal::Busy(why));
    }

    /// Connects with it, within this time, and not once the server ends.
    ///
    /// # Errors
    ///
    /// A sentence: it has gone, or there is nothing to connect it with; none where the server ends.
    pub(in crate::control) fn answer(
        self,
        time: Duration,
        is_closed: impl Fn() -> bool,
    ) -> Result<Stream, Option<String>> {
        let whom = self.whom.clone();
        let (sender, answer) = channel();
        // It cannot be broken off: its thread ends when the client confirms, or does not for too long.
        let asked = thread::Builder::new().name("rdma_cm".to_owned()).spawn(move || {
            // Nobody waits any more where this fails, and the connection ends.
            let _ = sender.send(self.connect());
        });
        asked.map_err(|error| Some(format!("{whom} connects by rdma_cm, and there is no thread for it: {error}")))?;
        let begin = Instant::now();
        while !is_closed() {
            let left = time.saturating_sub(begin.elapsed()).min(PAUSE);
            match answer.recv_timeout(left) {
                Ok(answer) => return answer.map_err(Some),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if left.is_zero() => {
                    return Err(Some(format!("{whom} connects by rdma_cm, and does not take the connection")));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        Err(None)
    }

    fn connect(self) -> Result<Stream, String> {
        let Self { caller, whom, theirs } = self;
        let link = match Link::new(caller.0.identifier(), caller.0.device_context()) {
            Ok(link) => link,
            Err(error) => {
                // It may have one later.
                caller.reject(&Refusal::Busy(format!("the server has no queue pair for a client: {error:#}")));
                return Err(format!("{whom} connects by rdma_cm, and there is no queue pair for it: {error:#}"));
            }
        };
        let mut parameter = ConnectionParameter::default();
        parameter.setup_private_data(&link.hail().bytes()).setup_rnr_retry_count(7);
        let accepted = caller.0.accept(&parameter);
        let connection = accepted.map_err(|error| format!("{whom} connects by rdma_cm, and that fails: {error}"))?;
        Ok(Stream::new(link, connection, theirs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_given_up_where_nothing_is_to_be_hoped_for() {
        let mut failures = Failures::default();
        assert!(!(0..10_000).any(|_| failures.are_enough_with(Some(libc::EMFILE))), "descriptors may be free again");
        let until = (1..).find(|_| failures.are_enough_with(Some(libc::EINVAL)));
        assert_eq!(until, Some(MOST_FAILURES));
        for errno in [libc::EIO, libc::ENODEV] {
            assert!(Failures::default().are_enough_with(Some(errno)));
        }
    }
}
