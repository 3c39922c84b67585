//! The server's end: it listens, and looks at who comes.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sideway::rdmacm::{ConnectCause, ConnectionParameter, Request};

use super::hail::{Hail, Refusal};
use super::link::Link;
use super::make_ready;
use super::stream::Stream;
use crate::exchange::contact::Family;

/// How long the server waits where the system has nothing for another client.
const PAUSE: Duration = Duration::from_millis(100);

/// How long who has asked for a connection may take to take it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where clients of rdma_cm come.
#[derive(Debug)]
pub(in crate::exchange) struct Listener(sideway::rdmacm::Listener);

impl Listener {
    /// Listens at all addresses of a family, or of both.
    pub(in crate::exchange) fn bind(port: u16, family: Option<Family>) -> Result<Self> {
        make_ready()?;
        let four = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
        let six = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
        let bind = |address: SocketAddr, is_af_only| {
            let mut builder = sideway::rdmacm::Listener::builder();
            builder.setup_timeout(PATIENCE);
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
    pub(in crate::exchange) fn port(&self) -> u16 {
        self.0.local_address().port()
    }

    /// Waits for the next who wants to connect; none where the TCP listener was shut down, or where nobody will come any more.
    pub(in crate::exchange) fn next(&self, stop: &TcpListener) -> Option<Caller> {
        loop {
            match self.0.accept(Some(Duration::ZERO)) {
                Ok(request) => return Some(Caller(request)),
                Err(error) if error.is_timed_out() => {}
                Err(error) if matches!(error.cause(), ConnectCause::DeviceRemoval) => {
                    log::warn!("nobody comes over rdma_cm any more: {error}");
                    return None;
                }
                // Who came has gone meanwhile, or no descriptor is left.
                Err(error) => {
                    log::debug!("{error}");
                    thread::sleep(PAUSE);
                }
            }
            let channel = self.0.event_channel();
            // Of the TCP listener nothing is asked: that it was shut down is told in any case.
            let mut both =
                [PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::IN), PollFd::new(stop, PollFlags::empty())];
            let second = Timespec { tv_sec: 1, tv_nsec: 0 };
            if let Err(error) = poll(&mut both, Some(&second))
                && error != rustix::io::Errno::INTR
            {
                log::warn!("nobody comes over rdma_cm any more: {error}");
                return None;
            }
            if both.last().is_some_and(|stop| !stop.revents().is_empty()) {
                return None;
            }
        }
    }
}

/// Who wants to connect.
pub(in crate::exchange) struct Caller(Request);

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.peer_address() {
            Some(address) => address.ip().to_canonical().fmt(f),
            None => f.write_str("somebody"),
        }
    }
}

impl Caller {
    /// Says that the server has too much to do.
    pub(in crate::exchange) fn refuse(self, why: String) {
        self.reject(&Refusal::Busy(why));
    }

    fn reject(self, why: &Refusal) {
        if let Err(error) = self.0.reject(&why.bytes()) {
            log::debug!("{error}");
        }
    }

    /// Connects with a client.
    ///
    /// # Errors
    ///
    /// A sentence: who comes is no client, or has gone, or there is nothing to connect it with.
    pub(in crate::exchange) fn answer(self) -> Result<Stream, String> {
        let whom = self.to_string();
        let theirs = match Hail::read(self.0.private_data()) {
            Ok(theirs) => theirs,
            Err(strange) => {
                self.reject(&Refusal::No(
                    "this is stride-perf, and who connects is not, or another version".to_owned(),
                ));
                return Err(format!("{whom} connects by rdma_cm, and is {}", strange.what()));
            }
        };
        let link = match Link::new(self.0.identifier(), self.0.device_context()) {
            Ok(link) => link,
            Err(error) => {
                self.reject(&Refusal::No(format!("the server has no queue pair for a client: {error:#}")));
                return Err(format!("{whom} connects by rdma_cm, and there is no queue pair for it: {error:#}"));
            }
        };
        let mut parameter = ConnectionParameter::default();
        parameter.setup_private_data(&Stream::hail().bytes()).setup_rnr_retry_count(7);
        let accepted = self.0.accept(&parameter);
        let connection = accepted.map_err(|error| format!("{whom} connects by rdma_cm, and that fails: {error}"))?;
        Ok(Stream::new(link, connection, theirs))
    }
}
