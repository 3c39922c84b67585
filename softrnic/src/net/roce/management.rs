//! The management datagrams of QP 1, which is the general service interface of each port (InfiniBand Architecture
//! Specification, volume 1, section 13.5). The connection manager takes those that have arrived.

use std::collections::VecDeque;
use std::sync::{Mutex, OnceLock};

use super::mad;
use super::packet::{Body, DEFAULT_PARTITION, Packet, Place as InMessage, SendEnd, Transport};
use super::socket::arrival::Arrival;
use crate::sys::thread::Place;
use crate::sys::unpoisoned;
use crate::wire::address::Gid;

/// The number of the QP.
pub(super) const NUMBER: u32 = 1;
/// The Q_Key of the QP at all ports.
const KEY: u32 = 0x8001_0000;
/// The maximum number of datagrams that wait for the connection manager. Others are dropped, and peers repeat them.
const MAX_WAITING: usize = 1024;

/// Makes the connection manager take the datagrams of this process, if it can do so now. It calls [`Inbox::open`].
static MANAGER: OnceLock<fn()> = OnceLock::new();

/// Sets the function that makes the connection manager take the datagrams, see [`Inbox::arrived`]. Only the first call
/// has an effect.
pub(crate) fn set_manager(manager: fn()) {
    let _ = MANAGER.set(manager);
}

/// A datagram that has arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    pub(crate) source: Gid,
    /// An address of this host.
    pub(crate) destination: Gid,
    pub(crate) bytes: [u8; mad::LENGTH],
}

/// The datagrams that wait for the connection manager.
#[derive(Debug)]
pub(super) struct Inbox {
    waiting: Mutex<VecDeque<Arrived>>,
    /// The task of the connection manager.
    place: OnceLock<Place>,
}

impl Inbox {
    pub(super) const fn new() -> Self {
        Self { waiting: Mutex::new(VecDeque::new()), place: OnceLock::new() }
    }

    /// Wakes a task when a datagram arrives. Only the first call has an effect.
    pub(super) fn open(&self, place: Place) {
        let _ = self.place.set(place);
    }

    pub(super) fn next(&self) -> Option<Arrived> {
        unpoisoned(self.waiting.lock()).pop_front()
    }

    /// Adds a datagram. `key` and `source` are its Q_Key and the number of the peer's QP.
    ///
    /// The datagram may be for another process of the host, and this one may not have used the connection manager yet. So
    /// this function calls the manager, which passes it on.
    pub(super) fn arrived(&self, arrival: &Arrival<'_>, packet: &Packet, payload: &[u8], (key, source): (u32, u32)) {
        let is_send = matches!(packet.body, Body::Send { end: SendEnd::Nothing, .. });
        let Ok(&bytes) = <&[u8; mad::LENGTH]>::try_from(payload) else { return };
        if (key, source) != (KEY, NUMBER) || !is_send || arrival.destination.is_multicast() {
            return;
        }
        if self.place.get().is_none()
            && let Some(manager) = MANAGER.get()
        {
            manager();
        }
        let Some(place) = self.place.get() else { return };
        let mut waiting = unpoisoned(self.waiting.lock());
        if waiting.len() < MAX_WAITING {
            waiting.push_back(Arrived { source: arrival.source, destination: arrival.destination, bytes });
            drop(waiting);
            place.wake();
        }
    }
}

/// Returns the packet of a datagram to the QP of the peer.
pub(super) fn packet() -> Packet {
    Packet {
        transport: Transport::Datagram { key: KEY, source: NUMBER },
        body: Body::Send { place: InMessage::Only, end: SendEnd::Nothing },
        is_solicited: false,
        asks: false,
        has_becn: false,
        partition: DEFAULT_PARTITION,
        destination: NUMBER,
        psn: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::thread::{Next, Reactor, Task};

    struct Nothing;

    impl Task for Nothing {
        fn turn(&mut self) -> Next {
            Next::Never
        }
    }

    fn arrival(destination: [u8; 4]) -> Arrival<'static> {
        Arrival {
            source: Gid::from_ipv4([10, 0, 0, 1]),
            destination: Gid::from_ipv4(destination),
            source_port: 0,
            traffic_class: 0,
            bytes: &[],
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn only_datagrams_of_the_service_are_taken_up_to_the_limit() {
        let (inbox, here, bytes) = (Inbox::new(), arrival([10, 0, 0, 2]), [7; mad::LENGTH]);
        let good = (KEY, NUMBER);
        inbox.arrived(&here, &packet(), &bytes, good);
        assert!(inbox.next().is_none(), "no task handles the datagram");
        inbox.open(Reactor::not_started().add(|_| Ok(Box::new(Nothing))).unwrap());
        inbox.arrived(&here, &packet(), &bytes, (1, NUMBER));
        inbox.arrived(&here, &packet(), &bytes, (KEY, 2));
        inbox.arrived(&here, &packet(), &bytes[1..], good);
        inbox.arrived(&arrival([224, 0, 0, 2]), &packet(), &bytes, good);
        assert!(inbox.next().is_none());
        for _ in 0..=MAX_WAITING {
            inbox.arrived(&here, &packet(), &bytes, good);
        }
        let first = inbox.next().unwrap();
        assert_eq!((first.source, first.destination, first.bytes), (here.source, here.destination, bytes));
        assert_eq!(std::iter::from_fn(|| inbox.next()).count(), MAX_WAITING - 1);
    }
}
