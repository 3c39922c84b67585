//! Peers that connect and send nothing, and more connections than the program accepts.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use super::*;

/// If set, the test `child` is a server.
const CHILD: &str = "TRESPASS_TEST_DESCRIPTORS";

#[test]
fn silent_peers_are_limited_in_number() {
    const PEERS: usize = 200;
    let mut server = Server::new(Transport::Tcp);
    let mut silent = Vec::new();
    for _ in 0..PEERS {
        let socket = TcpStream::connect(server.address).unwrap();
        socket.set_nonblocking(true).unwrap();
        silent.push(socket);
        server.worker.poll();
    }
    let is_dropped =
        |socket: &mut TcpStream| !matches!(socket.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock);
    for _ in 0..1_000 {
        server.worker.poll();
    }
    let dropped = silent.iter_mut().filter_map(|socket| is_dropped(socket).then_some(())).count();
    assert_eq!(dropped, PEERS - 64);
    // The oldest ones are dropped, and others are served.
    assert!(is_dropped(&mut silent[0]) && !is_dropped(silent.last_mut().unwrap()));
    let (mut client, near, far) = server.neighbour(Kind::Tcp);
    client.try_send(near, b"a neighbour").unwrap();
    assert_eq!(&wait_for_message(&mut server, far, &mut client)[..], b"a neighbour");
}

/// Over iWARP, RDMA devices connect to a TCP port, which the listener uses itself.
#[test]
fn iwarp_client_at_a_tcp_port_is_the_reason_for_tcp() {
    #[cfg(feature = "softrnic")]
    softrnic::register().unwrap();
    let mut server = Server::new(Transport::Any);
    let reason = |server: &mut Server| {
        let (_client, _, far) = server.neighbour(Kind::Tcp);
        server.worker.stats(far).unwrap().fallback.unwrap()
    };
    assert_eq!(reason(&mut server), "the client chose TCP");
    let mut socket = TcpStream::connect(server.address).unwrap();
    socket.write_all(b"MPA ID Req Frame\x40\x01\0\0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let begun = Instant::now();
    // The server closes the connection.
    while matches!(socket.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock) {
        server.worker.poll();
        assert!(begun.elapsed() < LONG);
    }
    let reason = reason(&mut server);
    assert!(reason.contains("iWARP"), "{reason}");
}

#[test]
fn connections_beyond_the_backlog_wait_until_the_program_accepts() {
    #[cfg(feature = "softrnic")]
    softrnic::register().unwrap();
    const BACKLOG: usize = 2;
    for (transport, kind) in [(Transport::Tcp, Kind::Tcp), (Transport::Rdma, Kind::Rdma)] {
        let mut server =
            Server::with(&Options { transport, memory: 256 << 20, backlog: BACKLOG as u32, ..Options::default() });
        let mut client = worker(transport, 64 << 20);
        // As many wait in the worker as it has established.
        let ids: Vec<_> = (0..2 * BACKLOG).map(|_| client.connect(kind, server.address).unwrap()).collect();
        let established = |client: &mut Worker| ids.iter().filter(|id| client.is_established(**id).unwrap()).count();
        let begun = Instant::now();
        for accepted in 0..=BACKLOG {
            while established(&mut client) < BACKLOG + accepted {
                server.worker.poll();
                client.poll();
                assert!(begun.elapsed() < LONG, "{kind:?}: {} after {accepted}", established(&mut client));
            }
            for _ in 0..100 {
                server.worker.poll();
                client.poll();
            }
            assert_eq!(established(&mut client), BACKLOG + accepted, "{kind:?}");
            server.accept(|| _ = client.poll());
        }
    }
}

#[test]
fn connections_of_a_listener_that_closes_end_in_each_state() {
    #[cfg(feature = "softrnic")]
    softrnic::register().unwrap();
    for (transport, kind) in [(Transport::Tcp, Kind::Tcp), (Transport::Rdma, Kind::Rdma)] {
        for turns in 0..12 {
            let mut server = Server::new(transport);
            let mut client = worker(transport, 64 << 20);
            let id = client.connect(kind, server.address).unwrap();
            // In alternation, so that each side has at most one step of the other to answer.
            for turn in 0..turns {
                if turn % 2 == 0 {
                    client.poll()
                } else {
                    server.worker.poll()
                };
                thread::sleep(Duration::from_millis(2));
            }
            server.worker.unlisten(server.listener);
            let begun = Instant::now();
            while matches!(client.try_recv(id), Err(error) if error.kind() == ErrorKind::WouldBlock) {
                server.worker.poll();
                client.poll();
                assert!(begun.elapsed() < LONG, "{kind:?}, after {turns} turns");
            }
        }
    }
}

/// With no descriptor left, a connection that waits keeps the listener ready. A worker that takes this for progress never
/// sleeps, and keeps its lock.
#[test]
fn without_descriptors_what_stands_continues() {
    let limited = "ulimit -n 64; exec \"$0\" worker::tests::accepting::child --exact --nocapture";
    let mut command = Command::new("sh");
    command.args(["-c", limited]).arg(std::env::current_exe().unwrap()).env(CHILD, "1");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let address = lines.find_map(|line| Some(line.split_once("listens at ")?.1.to_owned())).unwrap();
    let silent: Vec<_> = (0..100).map(|_| TcpStream::connect(&address).unwrap()).collect();
    child.stdin.take().unwrap().write_all(b"connected\n").unwrap();
    let said: Vec<_> = lines.collect();
    assert!(child.wait().unwrap().success(), "{}", said.join("\n"));
    drop(silent);
}

/// Runs in the child process.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let mut server = Server::new(Transport::Tcp);
    let (mut client, near, far) = server.neighbour(Kind::Tcp);
    // Peers that send their hello take the descriptors that are left.
    let mut peers = Vec::new();
    while peers.len() < 64
        && let Ok(id) = client.connect(Kind::Tcp, server.address)
    {
        peers.push(id);
        for _ in 0..10 {
            server.worker.poll();
            client.poll();
        }
    }
    println!("\nlistens at {}", server.address);
    io::stdin().read_line(&mut String::new()).unwrap();
    let mut quiet = 0;
    for _ in 0..100_000 {
        quiet = if server.worker.poll() == 0 { quiet + 1 } else { 0 };
        client.poll();
        if quiet == 100 {
            break;
        }
    }
    assert_eq!(quiet, 100, "the worker finds events without end");
    client.try_send(near, b"an old friend").unwrap();
    assert_eq!(&wait_for_message(&mut server, far, &mut client)[..], b"an old friend");
}
