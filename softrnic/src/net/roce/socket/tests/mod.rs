//! Tests over the loopback interface. Each test has its own port.

mod processes;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::io::Errno;
use sideway_test_names::Port;

use super::arrival::{Arrival, Receiver};
use super::batch::{Batch, Route};
use super::*;
use crate::net::roce::icrc::{Flow, icrc};
use crate::net::roce::packet::{Body, DEFAULT_PARTITION, Packet, Place, SendEnd, Transport};
use crate::sys::addresses;

pub(crate) fn gid(address: &str) -> Gid {
    match address.parse().unwrap() {
        IpAddr::V4(address) => Gid::from_ipv4(address.octets()),
        IpAddr::V6(address) => address.into(),
    }
}

pub(crate) fn route(source: &str, destination: &str) -> Route {
    Route { source: gid(source), destination: gid(destination), traffic_class: 0, hop_limit: 0, flow_label: 0 }
}

/// A packet of a message, to the QP 77.
pub(crate) fn packet(psn: u32) -> Packet {
    Packet {
        transport: Transport::Reliable,
        body: Body::Send { place: Place::Middle, end: SendEnd::Nothing },
        is_solicited: false,
        asks: false,
        has_becn: false,
        partition: DEFAULT_PARTITION,
        destination: 77,
        psn,
    }
}

/// What a test has received of an arrival.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    source: Gid,
    destination: Gid,
    source_port: u16,
    traffic_class: u8,
    psn: u32,
    payload: Vec<u8>,
}

impl Seen {
    fn new(arrival: &Arrival<'_>) -> Self {
        let Arrival { source, destination, source_port, traffic_class, bytes } = *arrival;
        assert_eq!(arrival.queue_pair(), 77);
        let (Packet { psn, .. }, payload) = Packet::read(bytes).unwrap();
        Self { source, destination, source_port, traffic_class, psn, payload: payload.to_vec() }
    }
}

/// Sockets that no other test uses.
struct End {
    sockets: Sockets,
    receiver: Receiver,
    port: Port,
}

impl End {
    fn open() -> Self {
        let port = Port::reserve();
        let sockets = Sockets::open_at(port.number()).unwrap();
        Self { sockets, receiver: Receiver::new(), port }
    }

    /// Receives until `count` packets have arrived.
    fn receive(&mut self, count: usize) -> Vec<Seen> {
        let mut seen = Vec::new();
        until(|| {
            self.sockets.receive_each(&mut self.receiver, |arrival| seen.push(Seen::new(&arrival))).unwrap();
            seen.len() >= count
        });
        assert_eq!(seen.len(), count);
        seen
    }

    /// Returns the numbers of wrong ICRCs, malformed packets and truncated datagrams, when their sum is `sum`. No packet
    /// may arrive.
    fn dropped(&mut self, sum: u64) -> [u64; 3] {
        let mut counts = [0; 3];
        until(|| {
            self.sockets.receive_each(&mut self.receiver, |arrival| panic!("{arrival:?}")).unwrap();
            let dropped = self.sockets.dropped();
            let counters = [&dropped.icrc_errors, &dropped.malformed, &dropped.truncated];
            counts = counters.map(|counter| counter.load(Ordering::Relaxed));
            counts.iter().sum::<u64>() >= sum
        });
        counts
    }

    /// Returns a batch with these payloads. The PSNs are their indexes.
    fn batch(&self, route: &Route, payloads: &[&[u8]]) -> Batch {
        let mut batch = self.sockets.batch(route);
        fill(&mut batch, payloads);
        batch
    }
}

fn fill(batch: &mut Batch, payloads: &[&[u8]]) {
    for (psn, payload) in (0..).zip(payloads) {
        batch.add(&packet(psn), payload).unwrap();
    }
}

fn until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("timed out");
}

/// Whether this host has IPv6. A test or a part of it that does not run reports this.
fn has_ipv6() -> bool {
    let has = UdpSocket::bind("[::1]:0").is_ok();
    if !has {
        println!("SKIPPED: this host has no IPv6");
    }
    has
}

/// The address pairs that tests use.
fn pairs() -> Vec<(&'static str, &'static str)> {
    let mut pairs = vec![("127.0.0.1", "127.0.0.1"), ("127.0.0.2", "127.0.0.3")];
    if has_ipv6() {
        pairs.push(("::1", "::1"));
    }
    pairs
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn batches_arrive_with_their_addresses() {
    let mut end = End::open();
    assert!(end.sockets.has_segmentation);
    for (source, destination) in pairs() {
        let route = Route { traffic_class: 0x28, ..route(source, destination) };
        let payloads: Vec<Vec<u8>> = (0..40).map(|index| vec![index; 1024]).collect();
        let mut payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
        payloads.push(b"the last one is shorter");
        let mut batch = end.batch(&route, &payloads);
        end.sockets.send(&mut batch).unwrap();
        assert!(batch.is_empty());
        fill(&mut batch, &[b"alone"]);
        end.sockets.send(&mut batch).unwrap();
        let seen = end.receive(42);
        for (index, seen) in seen.iter().enumerate() {
            let expected = Seen {
                source: gid(source),
                destination: gid(destination),
                source_port: end.port.number(),
                traffic_class: 0x28,
                psn: index as u32 % 41,
                payload: payloads.get(index).map_or(b"alone".to_vec(), |payload| payload.to_vec()),
            };
            assert_eq!(*seen, expected);
        }
    }
    assert_eq!(end.dropped(0), [0; 3]);
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn batches_arrive_without_segmentation() {
    let mut end = End::open();
    end.sockets.has_segmentation = false;
    for (source, destination) in pairs() {
        let mut batch = end.batch(&route(source, destination), &[&[1; 2048], &[2; 2048], &[3; 7]]);
        end.sockets.send(&mut batch).unwrap();
        let seen = end.receive(3);
        assert!(seen.iter().map(|seen| (seen.psn, seen.payload.len())).eq([(0, 2048), (1, 2048), (2, 7)]));
    }
    assert_eq!(end.dropped(0), [0; 3]);
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn batch_is_split_if_the_kernel_refuses_segments() {
    let mut end = End::open();
    // The kernel makes no segments without checksums.
    udp::set(end.sockets.ipv4.as_ref().unwrap(), libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
    let mut batch = end.batch(&route("127.0.0.1", "127.0.0.2"), &[&[1; 64], &[2; 64], &[3; 7]]);
    end.sockets.send(&mut batch).unwrap();
    assert!(batch.is_empty());
    assert!(end.receive(3).iter().map(|seen| (seen.psn, seen.payload.len())).eq([(0, 64), (1, 64), (2, 7)]));
    assert_eq!(end.dropped(0), [0; 3]);
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn ipv6_packet_without_checksum_arrives() {
    if !has_ipv6() {
        return;
    }
    let mut end = End::open();
    let peer = UdpSocket::bind("[::1]:0").unwrap();
    udp::set(&peer, libc::SOL_UDP, libc::UDP_NO_CHECK6_TX, 1).unwrap();
    let (source_port, destination_port) = (peer.local_addr().unwrap().port(), end.port.number());
    let flow = Flow { source: gid("::1"), destination: gid("::1"), source_port, destination_port };
    let mut bytes = Vec::new();
    packet(9).write(b"as rxe sends it.", &mut bytes);
    bytes.extend(icrc(&flow, 0, &bytes));
    peer.send_to(&bytes, ("::1", destination_port)).unwrap();
    assert_eq!(end.receive(1)[0].psn, 9);
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn destination_of_a_batch_can_change() {
    let mut end = End::open();
    let mut batch = end.batch(&route("127.0.0.1", "127.0.0.1"), &[b"dropped"]);
    batch.restart(&end.sockets.header(&route("127.0.0.4", "127.0.0.5")));
    fill(&mut batch, &[b"sent"]);
    end.sockets.send(&mut batch).unwrap();
    let seen = end.receive(1);
    assert_eq!((seen[0].source, seen[0].destination), (gid("127.0.0.4"), gid("127.0.0.5")));
    assert_eq!(seen[0].payload, b"sent");
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn malformed_packets_and_wrong_sums_are_counted() {
    let mut end = End::open();
    let port = end.port.number();
    for address in pairs().into_iter().map(|(source, _)| source) {
        let peer = UdpSocket::bind((address, 0)).unwrap();
        let source_port = peer.local_addr().unwrap().port();
        let flow = Flow { source: gid(address), destination: gid(address), source_port, destination_port: port };
        let to: SocketAddr = (address.parse::<IpAddr>().unwrap(), port).into();
        let mut bytes = Vec::new();
        packet(5).write(b"four", &mut bytes);
        let good = [&bytes[..], &icrc(&flow, 0, &bytes)].concat();
        peer.send_to(&good, to).unwrap();
        assert_eq!(end.receive(1)[0].source_port, source_port);
        let before = end.dropped(0);
        for length in [0, 1, 15, 19, 21] {
            peer.send_to(&[&good[..], &[0]].concat()[..length], to).unwrap();
        }
        // The change of a bit in a header, in the payload and in the sum.
        for byte in [6, 13, good.len() - 1] {
            let mut bad = good.clone();
            bad[byte] ^= 0x10;
            peer.send_to(&bad, to).unwrap();
        }
        // The sum covers the source port, too.
        UdpSocket::bind((address, 0)).unwrap().send_to(&good, to).unwrap();
        let after = end.dropped(before.iter().sum::<u64>() + 9);
        assert_eq!([after[0] - before[0], after[1] - before[1], after[2] - before[2]], [4, 5, 0], "{address}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn peer_that_numbers_its_packets_is_accepted() {
    let mut end = End::open();
    let port = end.port.number();
    let peer = UdpSocket::bind("127.0.0.6:0").unwrap();
    let source_port = peer.local_addr().unwrap().port();
    let (source, destination) = (gid("127.0.0.6"), gid("127.0.0.1"));
    let flow = Flow { source, destination, source_port, destination_port: port };
    for (psn, identification) in (0..).zip([40_000, 40_001, 40_003, 40_004, 65_535, 0, 1, 77]) {
        let mut bytes = Vec::new();
        packet(psn).write(b"data", &mut bytes);
        bytes.extend(icrc(&flow, identification, &bytes));
        peer.send_to(&bytes, ("127.0.0.1", port)).unwrap();
    }
    assert!(end.receive(8).iter().map(|seen| seen.psn).eq(0..8));
    assert_eq!(end.dropped(0), [0; 3]);
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn send_reports_why_it_failed() {
    let end = End::open();
    let send = |source: &str, destination: &str, length: usize| {
        let mut batch = end.batch(&route(source, destination), &[&vec![0; length]]);
        let result = end.sockets.send(&mut batch);
        assert_eq!(batch.is_empty(), result.is_ok());
        result
    };
    assert_eq!(send("127.0.0.1", "127.0.0.1", 60_000), Ok(()));
    assert_eq!(send("127.0.0.1", "::1", 4), Err(SendError::Route(Errno::AFNOSUPPORT)));
    // These addresses are for documentation, so no host has them.
    assert!(matches!(send("203.0.113.9", "127.0.0.1", 4), Err(SendError::Route(_))));
    let error = SendError::TooLong { mtu: Some(1500) };
    assert!(error.to_string().contains("MTU of 1500"), "{error}");
    assert!(!SendError::TooLong { mtu: None }.to_string().contains("interface"));
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn group_delivers_only_to_sockets_that_have_joined() {
    let mut end = End::open();
    let mut other =
        End { sockets: Sockets::open_at(end.port.number()).unwrap(), receiver: Receiver::new(), port: Port::reserve() };
    let group = end.port.group(1).to_string();
    let mut sources = vec![(gid(&group), gid("127.0.0.1"))];
    // Packets of this scope never leave the host. The loopback interface has no route to them.
    let is_outside = |ip: &Ipv6Addr| ip.to_ipv4_mapped().is_none() && *ip != Ipv6Addr::LOCALHOST;
    match addresses::all().into_iter().map(|address| address.ip).find(is_outside) {
        Some(source) => sources.push((gid("ff01::4791:1"), source.into())),
        None => println!("SKIPPED: no interface has an IPv6 address"),
    }
    for (group, source) in sources {
        end.sockets.change_membership(group, true).unwrap();
        assert_eq!(end.sockets.change_membership(group, true), Err(Errno::ADDRINUSE));
        let mut batch = end.batch(&Route { source, destination: group, ..route("::", "::") }, &[b"to all"]);
        end.sockets.send(&mut batch).unwrap();
        let seen = end.receive(1);
        assert_eq!((seen[0].destination, seen[0].source), (group, source));
        assert_eq!(other.sockets.receive(&mut other.receiver, |_| panic!("not joined")), Ok(0));
        end.sockets.change_membership(group, false).unwrap();
        assert_eq!(end.sockets.change_membership(group, false), Err(Errno::ADDRNOTAVAIL));
    }
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn taken_port_is_reported() {
    let port = Port::reserve();
    // A socket without SO_REUSEPORT, as those of rdma_rxe.
    let _taken = UdpSocket::bind(("0.0.0.0", port.number())).unwrap();
    let error = Sockets::open_at(port.number()).unwrap_err();
    assert_eq!(error, OpenError::PortTaken(port.number()));
    assert!(error.to_string().contains("rdma_rxe is loaded"), "{error}");
}

#[test]
fn errors_name_their_cause() {
    let text = |errno| OpenError::new(4791, "bind", errno).to_string();
    assert!(text(Errno::PERM).contains("not permitted"));
    assert_eq!(text(Errno::NFILE), format!("cannot open UDP port 4791: bind failed: {}", Errno::NFILE));
    let text = |has_df| OpenError::Identification { identification: 7, has_df }.to_string();
    assert!(text(true).contains("Identification 7, so") && text(false).contains("7 without the flag DF, so"));
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn path_mtu_follows_from_the_interface() {
    let end = End::open();
    let loopback = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap().trim().parse();
    assert_eq!(mtu(gid("127.0.0.2")), Ok(loopback.unwrap()));
    assert_eq!(mtu(gid("203.0.113.9")), Err(Errno::ADDRNOTAVAIL));
    assert!(end.sockets.receive_buffer() > 4096);
    let mtus = [65_536, 9000, 4176, 4175, 1500, 1104, 1103, 300, 0].map(|mtu| path_mtu(mtu, HEADERS));
    assert_eq!(mtus, [4096, 4096, 4096, 2048, 1024, 1024, 512, 256, 256]);
    assert_eq!((path_mtu(4192, CM_HEADERS), path_mtu(4191, CM_HEADERS)), (4096, 2048));
}
