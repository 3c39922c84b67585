//! Initial inputs for the fuzz targets: valid inputs, and nearly valid ones.

use std::time::UNIX_EPOCH;

use crate::control::{Done, Hello, Message, Offer, PROTOCOL, Reason, Request};
use crate::endpoint::fake::Fake;
use crate::endpoint::{EndpointFactory, Intake, Path, PeerInfo, PortInfo, QpAddress, Role};
use crate::plan::{Given, Placement, Plan, QpAttributes, Queues, SideConfig, Transport};
use crate::report::json::{Document, Event};
use crate::report::{Environment, Row};
use crate::stats::{Bandwidth, Figures, Interval, Seen};

const SERVER: u8 = 0;
const CLIENT: u8 = 1;

fn port_info(role: Role) -> PortInfo {
    Fake::default().open(&Plan::default(), &SideConfig::default(), role).unwrap().port_info().clone()
}

fn path() -> Path {
    Path { client_gid: Some(3), server_gid: Some(3), mtu: 4096, others: Vec::new() }
}

/// Returns the messages that a side receives, in encoded form.
fn received(role: u8, messages: &[Message]) -> Vec<u8> {
    let mut bytes = vec![role];
    for message in messages {
        let body = message.pack().unwrap();
        bytes.extend(b"\x93stride\n");
        bytes.extend(PROTOCOL.to_be_bytes());
        bytes.extend(message.kind().to_be_bytes());
        bytes.extend((body.len() as u32).to_be_bytes());
        bytes.extend(body);
    }
    bytes
}

fn environment() -> Environment {
    let command_line = ["stride-perf", "write", "bw", "server"].map(str::to_owned).to_vec();
    let sides = [port_info(Role::Client), port_info(Role::Server)];
    Environment::new(UNIX_EPOCH, command_line, Plan::default(), path(), sides)
}

fn row() -> Row {
    let intervals = vec![250_000, 240_000, 260_000, 250_000];
    Row::new(
        64,
        Figures::Bandwidth(Bandwidth {
            messages: 1_000_000,
            seconds: 1.0,
            intervals,
            interval: 0.25,
            cpu: Some(1.0),
            ..Bandwidth::default()
        }),
    )
}

fn document() -> Vec<u8> {
    let mut text = Vec::new();
    Document::new(environment(), vec![row()], Vec::new()).write(&mut text).unwrap();
    text
}

/// Returns a stream that ends in the middle of a message.
fn stream() -> Vec<u8> {
    let mut text = Vec::new();
    Event::start(environment()).write(&mut text).unwrap();
    let interval = Interval { start: 0.0, end: 1.0, seen: Seen::Bandwidth { messages: 7 } };
    Event::interval(64, &interval).write(&mut text).unwrap();
    Event::Row(row()).write(&mut text).unwrap();
    text
}

fn control_inputs() -> [(&'static str, Vec<u8>); 8] {
    let hello = || Message::Hello(Hello { version: "1".to_owned(), busy: None });
    let of = |plan| Message::Request(Box::new(Request { plan, given: Given::default() }));
    let request = || of(Plan::default());
    let offer = || {
        Message::Offer(Box::new(Offer {
            port_info: port_info(Role::Server),
            gid_index: None,
            other_gid_indices: Vec::new(),
        }))
    };
    let ends_with = |intake| {
        let end = QpAddress { number: 1, psn: 2, address: 3, rkey: 4, intake };
        Message::PeerInfo(PeerInfo {
            lid: 0,
            gid: Some("::1".to_owned()),
            reads: 16,
            queue_pairs: vec![end],
            inline: 0,
            listening: None,
            others: Vec::new(),
        })
    };
    let ends = || ends_with(None);
    let size = || Message::Size(64 << 10);
    let enough = Reason { text: "enough".to_owned(), is_rdma: false };
    let done = Message::Done(Done { is_whole: true });
    let whole = [
        hello(),
        request(),
        Message::Path(path()),
        ends(),
        Message::Connected,
        size(),
        Message::Go,
        done,
        Message::End,
    ];
    let target = ends_with(Some(Intake::Dc { number: 5, key: 6 }));
    let dynamic = [
        hello(),
        of(Plan {
            attributes: QpAttributes { transport: Transport::Dc, ..QpAttributes::default() },
            ..Plan::default()
        }),
        Message::Path(path()),
        target,
    ];
    let dynamic = [&dynamic[..], &whole[4..]].concat();
    let two = || SideConfig::default().spread(2);
    let wide = Plan {
        queues: Queues { queue_pairs: 2, threads: 2, ..Queues::default() },
        placement: Placement { client: two(), server: two(), ..Placement::default() },
        ..Plan::default()
    };
    let ways = Message::Path(Path { others: vec![path()], ..path() });
    let Message::PeerInfo(end) = ends() else { unreachable!("they are ends") };
    let wide = [hello(), of(wide), ways, Message::PeerInfo(PeerInfo { others: vec![end.clone()], ..end })];
    let wide = [&wide[..], &whole[4..]].concat();
    let served = [
        hello(),
        Message::Note("a note".to_owned()),
        offer(),
        ends(),
        Message::Connected,
        Message::Ready,
        Message::Figures(None),
    ];
    [
        ("control/good-client", received(SERVER, &whole)),
        ("control/good-dynamic", received(SERVER, &dynamic)),
        ("control/good-ports", received(SERVER, &wide)),
        ("control/good-server", received(CLIENT, &served)),
        ("control/bad-order", received(SERVER, &[hello(), request(), size()])),
        ("control/bad-foreign", [&[SERVER][..], b"GET / HTTP/1.1\r\n\r\n"].concat()),
        ("control/bad-end", received(CLIENT, &served[..3])),
        ("control/bad-error", received(CLIENT, &[hello(), Message::Error(enough)])),
    ]
}

pub(super) fn all() -> Vec<(&'static str, Vec<u8>)> {
    let mut all = vec![
        ("results/good-document", document()),
        ("results/good-stream", stream()),
        ("results/bad-format", b"{\"format\": 7}".to_vec()),
        ("results/bad-cut", document()[..400].to_vec()),
    ];
    all.extend(control_inputs());
    for (path, text) in [
        (
            "results/good-bandwidth",
            "RDMA_Write BW Test\n#bytes #iterations BW peak[MB/sec] BW average[MB/sec] MsgRate[Mpps]\n65536 5000 11660.10 11657.31 0.186517\n",
        ),
        (
            "results/good-latency",
            "Send Latency Test\n#bytes #iterations t_min[usec] t_max[usec] t_typical[usec] t_avg[usec] t_stdev[usec] \
             99% percentile[usec] 99.9% percentile[usec]\n2 1000 0.93 3.58 0.95 0.96 0.05 1.06 3.58\n",
        ),
        ("results/bad-head", "RDMA_Write BW Test\n1 2 3 4 5\n"),
        (
            "command_line/good-measure",
            "write\nbw\n--min-msg-size\n64\n--max-msg-size\n4K\n--step-factor\n4\n-6\n-p\n7\n--timeout\n1m\nh",
        ),
        ("command_line/good-serve", "server\n--timeout\n3s"),
        ("command_line/good-latency", "send\nlat\n-n\n1000\n--cpu\n0-3,7\nhost"),
        ("command_line/good-ports", "write\nbw\n-d\nmlx5_0,mlx5_1\n-x\n3,5\n-q\n4\nhost"),
        ("command_line/bad-ports", "write\nbw\n-d\na,b,c\n-i\n1,2\nhost"),
        ("command_line/bad-size", "write\nbw\n--msg-size\n9999999999999t"),
        ("command_line/bad-word", "wirte\nbw"),
    ] {
        all.push((path, text.as_bytes().to_vec()));
    }
    all
}
