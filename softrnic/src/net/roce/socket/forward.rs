//! Packets for QPs of other processes of this host.
//!
//! The processes of a host share the UDP port, and the kernel selects one of them for each pair of addresses and ports.
//! This process may so receive packets for QPs of other processes. Each process owns blocks of QP numbers (see
//! `ipc/block.rs`), and listens at a socket name for each block. A process that receives a packet for a foreign block
//! sends it there. The protocol recovers from packets that are dropped because a socket is full.
//!
//! A management datagram is for the process that owns the block in its id of a connection, or if it requests a
//! connection, for the process that listens. This process has a socket name for the listener, too.
//!
//! The sockets are SOCK_SEQPACKET: unlike datagram sockets, both ends can check the user of the other end, and the queue
//! is limited by its bytes instead of `net.unix.max_dgram_qlen`, which is 10 packets by default.
//!
//! A classic BPF program can select the process by the QP number (SO_ATTACH_REUSEPORT_CBPF), which saves this detour. It
//! returns the index of a socket in its group, but the indexes change when a process ends, and the group has only one
//! program. So the detour is necessary in any case.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustc_hash::FxBuildHasher;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};
use smallvec::SmallVec;

use super::arrival::{Arrival, BTH};
use crate::sys::credentials::is_ours;
use crate::sys::descriptor::Descriptor;
use crate::sys::unpoisoned;
use crate::wire::address::Gid;

/// The length of the addresses before a packet: source, destination, source port, traffic class, and a zero.
const HEADER: usize = 36;
/// The largest message: a UDP datagram with the header.
const LENGTH: usize = HEADER + (1 << 16);
/// The backlog of a listener.
const BACKLOG: i32 = 512;
/// The requested size of the send buffer, which limits the packets that the owner has not received yet.
/// `net.core.wmem_max` limits it.
const SEND_BUFFER: usize = 4 << 20;
/// The maximum numbers of sockets, and of packets of each, that one call handles.
const SOCKETS: usize = 64;
const PACKETS: usize = 64;

/// Connections from which packets have arrived, with their IDs.
type Connections = SmallVec<[(u64, Arc<Descriptor>); SOCKETS]>;

/// The connections to the other processes of this user that use the port.
#[derive(Debug)]
pub(super) struct Forwarding {
    port: u16,
    /// The epoll descriptor with the listeners and the connections from other processes.
    pub(super) ready: Descriptor,
    /// Whether this process owns a block or a listener.
    is_owner: AtomicBool,
    /// Whether a connection of another process may wait, for example because no descriptor was available.
    has_waiting: AtomicBool,
    incoming: Mutex<Incoming>,
    /// The connections to the owners of blocks.
    outgoing: Mutex<HashMap<u32, Descriptor, FxBuildHasher>>,
}

#[derive(Debug)]
struct Incoming {
    /// The listeners with their names.
    listeners: BTreeMap<u64, (String, Descriptor)>,
    connections: BTreeMap<u64, Arc<Descriptor>>,
    /// The ID of the next listener or connection in the epoll set.
    next: u64,
}

impl Forwarding {
    pub(super) fn new(port: u16) -> Result<Self, Errno> {
        let ready = Descriptor::open(|| epoll::create(epoll::CreateFlags::CLOEXEC))?;
        let incoming = Incoming { listeners: BTreeMap::new(), connections: BTreeMap::new(), next: 0 };
        Ok(Self {
            port,
            ready,
            is_owner: AtomicBool::new(false),
            has_waiting: AtomicBool::new(false),
            incoming: Mutex::new(incoming),
            outgoing: Mutex::default(),
        })
    }

    /// Makes this process the owner of a block.
    pub(super) fn own(&self, block: u32) -> Result<(), Errno> {
        self.listen(&block_name(block))
    }

    /// Makes this process the one that gets the requests for a listener.
    pub(super) fn own_service(&self, name: &str) -> Result<(), Errno> {
        self.listen(&service_name(name))
    }

    fn listen(&self, name: &str) -> Result<(), Errno> {
        let listener = socket()?;
        rustix::net::bind(&listener, &self.address(name)?)?;
        rustix::net::listen(&listener, BACKLOG)?;
        let mut incoming = unpoisoned(self.incoming.lock());
        let id = incoming.next_id();
        // With ET, a connection that cannot be accepted does not make the set ready all the time.
        let events = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.ready, &listener, epoll::EventData::new_u64(id), events)?;
        incoming.listeners.insert(id, (name.to_owned(), listener));
        self.is_owner.store(true, Ordering::Release);
        Ok(())
    }

    /// Ends the effect of [`own_service`](Self::own_service).
    pub(super) fn disown_service(&self, name: &str) {
        let name = service_name(name);
        let mut incoming = unpoisoned(self.incoming.lock());
        let id = incoming.listeners.iter().find(|(_, (found, _))| *found == name).map(|(id, _)| *id);
        if let Some((_, listener)) = id.and_then(|id| incoming.listeners.remove(&id)) {
            _ = epoll::delete(&self.ready, &listener);
        }
    }

    /// Sends a packet to the process that has a listener. The connection is not kept, because the process may change.
    pub(super) fn send_to_service(&self, name: &str, arrival: &Arrival<'_>) -> Result<(), Errno> {
        send(&self.connect(&service_name(name))?, arrival)
    }

    /// Sends a packet to the owner of a block.
    pub(super) fn send(&self, block: u32, arrival: &Arrival<'_>) -> Result<(), Errno> {
        let mut outgoing = unpoisoned(self.outgoing.lock());
        // The second attempt is for a process that took the block after its last owner has ended.
        for _ in 0..2 {
            let connection = match outgoing.entry(block) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(self.connect(&block_name(block))?),
            };
            match send(connection, arrival) {
                Ok(()) => return Ok(()),
                Err(error @ (Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM | Errno::MSGSIZE)) => return Err(error),
                Err(_) => drop(outgoing.remove(&block)),
            }
        }
        Err(Errno::CONNREFUSED)
    }

    /// Connects to the process that has a name, which must belong to the user of this process.
    fn connect(&self, name: &str) -> Result<Descriptor, Errno> {
        let connection = socket()?;
        rustix::net::connect(&connection, &self.address(name)?)?;
        if !is_ours(connection.as_fd()) {
            return Err(Errno::PERM);
        }
        // This allows more packets in flight, but is not required.
        _ = sockopt::set_socket_send_buffer_size(&connection, SEND_BUFFER);
        Ok(connection)
    }

    /// Calls `arrived` for packets that other processes have sent here. Returns their number. A message that is no packet
    /// counts, and increments `malformed`.
    pub(super) fn receive(
        &self,
        buffer: &mut Vec<u8>,
        mut malformed: impl FnMut(),
        mut arrived: impl FnMut(Arrival<'_>),
    ) -> usize {
        if !self.is_owner.load(Ordering::Acquire) {
            return 0;
        }
        buffer.resize(LENGTH, 0);
        let mut count = 0;
        // The callback runs without the lock, because it may use this object.
        for (id, connection) in self.ready_connections() {
            for _ in 0..PACKETS {
                match rustix::net::recv(&*connection, &mut buffer[..], RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
                    Ok((length, _)) if length > 0 => {
                        count += 1;
                        match buffer.get(..length).and_then(parse) {
                            Some(arrival) => arrived(arrival),
                            None => malformed(),
                        }
                    }
                    Err(Errno::AGAIN | Errno::INTR) => break,
                    _ => {
                        _ = epoll::delete(&self.ready, &*connection);
                        unpoisoned(self.incoming.lock()).connections.remove(&id);
                        break;
                    }
                }
            }
        }
        count
    }

    /// Returns the connections from which packets have arrived, and accepts new ones.
    fn ready_connections(&self) -> Connections {
        let mut connections = Connections::new();
        if self.has_waiting.swap(false, Ordering::Relaxed) {
            let mut incoming = unpoisoned(self.incoming.lock());
            let listeners: Vec<u64> = incoming.listeners.keys().copied().collect();
            listeners.into_iter().for_each(|listener| self.accept(&mut incoming, listener, &mut connections));
        }
        let mut events = [const { MaybeUninit::uninit() }; SOCKETS];
        let Ok((events, _)) = epoll::wait(&self.ready, &mut events, Some(&Timespec::default())) else {
            return connections;
        };
        if events.is_empty() {
            return connections;
        }
        let mut incoming = unpoisoned(self.incoming.lock());
        for id in events.iter().map(|event| event.data.u64()) {
            match incoming.connections.get(&id) {
                Some(connection) => connections.push((id, Arc::clone(connection))),
                None => self.accept(&mut incoming, id, &mut connections),
            }
        }
        connections
    }

    /// Accepts the connections that wait at a listener, from processes of this user.
    fn accept(&self, incoming: &mut Incoming, listener: u64, connections: &mut Connections) {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        for _ in 0..BACKLOG {
            let Some((_, listener)) = incoming.listeners.get(&listener) else { return };
            let connection = match Descriptor::open(|| rustix::net::accept_with(listener, flags)) {
                Ok(connection) => connection,
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => continue,
                Err(_) => break,
            };
            if !is_ours(connection.as_fd()) {
                continue;
            }
            let (id, connection) = (incoming.next_id(), Arc::new(connection));
            let data = epoll::EventData::new_u64(id);
            if epoll::add(&self.ready, &*connection, data, epoll::EventFlags::IN).is_ok() {
                incoming.connections.insert(id, Arc::clone(&connection));
                connections.push((id, connection));
            }
        }
        self.has_waiting.store(true, Ordering::Relaxed);
    }

    /// Returns the address of a name. The kernel frees it when the process ends.
    fn address(&self, name: &str) -> Result<SocketAddrUnix, Errno> {
        SocketAddrUnix::new_abstract_name(format!("softrnic/1/udp/{}/{name}", self.port).as_bytes())
    }
}

impl Incoming {
    fn next_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

fn block_name(block: u32) -> String {
    format!("{block:x}")
}

fn service_name(name: &str) -> String {
    format!("cm/{name}")
}

fn socket() -> Result<Descriptor, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Descriptor::open(|| rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None))
}

fn send(connection: &Descriptor, arrival: &Arrival<'_>) -> Result<(), Errno> {
    let mut header = [0; HEADER];
    header[..16].copy_from_slice(&arrival.source.0);
    header[16..32].copy_from_slice(&arrival.destination.0);
    header[32..34].copy_from_slice(&arrival.source_port.to_be_bytes());
    header[34] = arrival.traffic_class;
    let parts = [IoSlice::new(&header), IoSlice::new(arrival.bytes)];
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(connection, &parts, &mut SendAncillaryBuffer::default(), flags).map(drop)
}

/// Reads a message of [`send`]. The process that has sent it has checked the ICRC.
fn parse(message: &[u8]) -> Option<Arrival<'_>> {
    let (source, rest) = message.split_first_chunk()?;
    let (destination, rest) = rest.split_first_chunk()?;
    let (&[port, port_end, traffic_class, _], bytes) = rest.split_first_chunk()?;
    let is_packet = bytes.len() >= BTH && bytes.len().is_multiple_of(4);
    is_packet.then_some(Arrival {
        source: Gid(*source),
        destination: Gid(*destination),
        source_port: u16::from_be_bytes([port, port_end]),
        traffic_class,
        bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_messages_with_a_packet_are_read() {
        let mut message: Vec<u8> = (0..100).collect();
        let arrival = parse(&message).unwrap();
        assert_eq!((arrival.source.0[0], arrival.destination.0[15]), (0, 31));
        assert_eq!((arrival.source_port, arrival.traffic_class), (0x2021, 34));
        assert_eq!(arrival.bytes, &message[36..]);
        for length in [0, 15, 31, 35, 36, 47, 49] {
            message.truncate(length.max(1));
            assert_eq!(parse(&message[..length.min(message.len())]), None, "{length}");
            message = (0..100).collect();
        }
    }
}
