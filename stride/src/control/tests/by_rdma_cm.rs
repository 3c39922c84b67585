//! A server whose clients come over TCP and over rdma_cm of softrnic.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};

use sideway::rdmacm::{ConnectionParameter, Connector};

use super::super::cm::{dial, tests::listener};
use super::*;

/// A server that listens for both, and the contacts by TCP and by rdma_cm.
fn both(timeout: Duration) -> (Running, [ControlOptions; 2]) {
    let (cm, address) = listener();
    let running = Running::at(Listeners::new(TcpListener::bind("127.0.0.1:0").unwrap(), Some(cm)), timeout);
    let by_rdma_cm = ControlOptions { by_rdma_cm: true, port: address.port(), family: None, timeout: LONG };
    let contacts = [running.contact(), by_rdma_cm];
    (running, contacts)
}

fn measured(contact: &ControlOptions, request: &Request) -> Result<Outcome, Failure> {
    let met = connect("127.0.0.1", contact, Some(LONG))?;
    measure(met.connection, met.near, &Fake::default(), request, &mut ())
}

#[test]
fn clients_come_either_way_in_turn() {
    let (server, [tcp, cm]) = both(LONG);
    // What the sides say of so many is long.
    for (contact, queue_pairs) in [(&cm, 1), (&tcp, 2), (&cm, 3000), (&cm, 1), (&tcp, 1)] {
        let request = request(|plan| (plan.queues.queue_pairs, plan.workload.sizes) = (queue_pairs, vec![64, 128]));
        assert_eq!(measured(contact, &request).unwrap().steps.len(), 2);
    }
    let met = connect("127.0.0.1", &cm, None).unwrap();
    assert_eq!(met.near.server, Some("127.0.0.1".parse().unwrap()));
    drop(met);
    server.stop.stop();
    server.end().unwrap();
}

#[test]
fn who_comes_meanwhile_is_told_either_way() {
    let (_server, [tcp, cm]) = both(LONG);
    for (first, second) in [(&tcp, &cm), (&cm, &tcp), (&cm, &cm)] {
        let met = connect("127.0.0.1", first, Some(LONG)).unwrap();
        let Err(Failure::Busy(text)) = connect("127.0.0.1", second, None) else { panic!() };
        assert!(text.starts_with("the server is busy with a test for 127.0.0.1"), "{text}");
        measure(met.connection, met.near, &Fake::default(), &request(|_| ()), &mut ()).unwrap();
    }
}

#[test]
fn strangers_over_rdma_cm_are_named_and_do_not_have_the_server() {
    let (server, [_, cm]) = both(LONG);
    let address = SocketAddr::new([127, 0, 0, 1].into(), cm.port);
    // Some say nothing, and stay.
    let _silent: Vec<_> = (0..3).map(|_| dial("host", address, LONG).unwrap()).collect();
    // One asks for the way, and does not go it.
    let _resolved = Connector::new().resolve(address).unwrap();
    let mut web = dial("host", address, LONG).unwrap();
    web.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(server.failure().contains("is a web client"));
    // One goes in the middle of a message.
    let mut cut = dial("host", address, LONG).unwrap();
    cut.write_all(b"\x93stride\n\0\x03\0\x01\0\0\0").unwrap();
    drop(cut);
    assert!(server.failure().contains("closed the connection before it said who it is"));
    measured(&cm, &request(|_| ())).unwrap();
    for _ in 0..3 {
        assert_eq!(server.failure(), "127.0.0.1 says nothing since it has connected: it may be no stride-perf");
    }
}

#[test]
fn a_crowd_over_rdma_cm_is_told_that_the_server_is_busy() {
    let (_server, [_, cm]) = both(LONG);
    let address = SocketAddr::new([127, 0, 0, 1].into(), cm.port);
    let met = connect("127.0.0.1", &cm, Some(LONG)).unwrap();
    // They stay, and say nothing; those for whom there is no place are not even connected.
    let crowd: Vec<_> = (0..24).map(|_| dial("host", address, LONG)).collect();
    let refused = crowd.iter().filter(|one| matches!(one, Err(Failure::Busy(_)))).count();
    assert!(refused >= 8, "{refused} of them were refused");
    let Err(Failure::Busy(text)) = connect("127.0.0.1", &cm, None) else { panic!() };
    assert!(text.starts_with("the server is busy with a test for 127.0.0.1"), "{text}");
    measure(met.connection, met.near, &Fake::default(), &request(|_| ()), &mut ()).unwrap();
}

#[test]
fn who_is_silent_over_either_locks_no_client_out() {
    let (server, [tcp, cm]) = both(LONG);
    // As many as are listened to for long, of each kind.
    let _over_tcp: Vec<_> = (0..16).map(|_| TcpStream::connect(("127.0.0.1", tcp.port)).unwrap()).collect();
    let address = SocketAddr::new([127, 0, 0, 1].into(), cm.port);
    let _over_rdma_cm: Vec<_> = (0..16).map(|_| dial("host", address, LONG).unwrap()).collect();
    for contact in [&cm, &tcp] {
        let met = connect("127.0.0.1", contact, None).unwrap();
        measure(met.connection, met.near, &Fake::default(), &request(|_| ()), &mut ()).unwrap();
    }
    drop(server);
}

#[test]
fn of_a_flood_over_rdma_cm_little_is_kept_and_the_server_ends_in_the_middle_of_it() {
    let (server, [_, cm]) = both(LONG);
    let address = SocketAddr::new([127, 0, 0, 1].into(), cm.port);
    let met = connect("127.0.0.1", &cm, Some(LONG)).unwrap();
    // Somebody else's program; nobody connects with it.
    let come = || {
        let resolved = Connector::new().setup_timeout(Duration::from_secs(5)).resolve(address)?;
        let mut parameter = ConnectionParameter::default();
        parameter.setup_qp_number(7).setup_private_data(b"GET / HTTP/1.1");
        resolved.connect_with(&parameter, |_, _| Ok::<_, std::fmt::Error>(())).map(drop)
    };
    for _ in 0..100 {
        assert!(come().unwrap_err().rejection().is_some());
    }
    measure(met.connection, met.near, &Fake::default(), &request(|_| ()), &mut ()).unwrap();
    let told = std::iter::from_fn(|| Some(server.failure()));
    let strangers = told.take_while(|text| text.contains("is no stride-perf")).count();
    assert_eq!(strangers, 64, "and after these how many more there were");
    // They do not stop, and it does.
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !has_ended.load(Ordering::Relaxed) {
                    let _ = come();
                }
            });
        }
        server.stop.stop();
        server.end().unwrap();
        has_ended.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_client_that_goes_is_missed_and_one_that_is_silent_is_timed() {
    let timeout = Duration::from_secs(2);
    let (server, [_, cm]) = both(timeout);
    drop(connect("127.0.0.1", &cm, Some(LONG)).unwrap());
    assert_eq!(server.failure(), "the client has gone away: it ended, or was stopped");
    let _silent = connect("127.0.0.1", &cm, Some(LONG)).unwrap();
    let said = server.failure();
    assert!(said.starts_with("the client says nothing since 2s"), "{said}");
}

#[test]
fn a_server_that_listens_for_both_has_one_port() {
    drop(listener());
    let contact = ControlOptions { by_rdma_cm: true, port: 0, family: None, timeout: LONG };
    let reception = listen(&contact).unwrap();
    assert!(reception.has_rdma_cm());
    let port = reception.local_address().unwrap().port();
    assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());
    let address = SocketAddr::new([127, 0, 0, 1].into(), port);
    // It is there, and nobody takes those in who come.
    let Err(Failure::Unreachable(text)) = dial("host", address, Duration::from_millis(300)) else { panic!() };
    assert!(text.starts_with(&format!("host does not answer at rdma_cm port {port}")), "{text}");
}
