//! Errors of connections that cannot be established.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use sideway::ibverbs::queue_pair::QueuePairState;
use sideway::rdmacm::communication_manager::RejectReason;
use sideway::rdmacm::{ConnectCause, ConnectError, ConnectStep, ConnectionParameter, Connector, Listener};
use sideway_tests::connections::{End, LONG, address};
use sideway_tests::device;
use sideway_tests::interface::Interface;
use sideway_tests::programs::port;

use super::{connector, listener};

/// Tries to connect, with a queue pair.
fn fail(connector: &Connector, to: SocketAddr) -> ConnectError {
    let resolved = connector.resolve(to).unwrap();
    let _end = End::of(resolved.identifier().clone());
    resolved.connect(&ConnectionParameter::default()).unwrap_err()
}

/// Tries to connect to an unresponsive address for half a second; longer on a machine so slow that the time ends before
/// the request is sent.
fn fail_without_answer(to: SocketAddr) -> (ConnectError, Duration) {
    let mut within = Duration::from_millis(500);
    loop {
        let resolved = Connector::new().setup_timeout(within).resolve(to);
        let error = resolved.and_then(|resolved| {
            let _end = End::of(resolved.identifier().clone());
            resolved.connect(&ConnectionParameter::default())
        });
        let error = error.unwrap_err();
        assert!(error.is_timed_out(), "{error}");
        if error.step() == ConnectStep::Connect || within > LONG {
            return (error, within);
        }
        within *= 4;
    }
}

#[test]
fn port_without_a_listener_refuses() {
    let to = SocketAddr::new(address(), port());
    let error = fail(&connector(), to);
    assert_eq!(error.rejection().unwrap().reason(), Some(RejectReason::InvalidServiceId));
    assert_eq!((error.step(), error.address()), (ConnectStep::Connect, Some(to)));
    assert_eq!(error.to_string(), format!("connecting to {to}: rejected: no listener on that port"));
    let error = io::Error::from(error);
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    assert!(error.get_ref().unwrap().downcast_ref::<ConnectError>().is_some());
}

#[test]
fn rejection_arrives_with_its_reason() {
    let listener = listener();
    thread::scope(|scope| {
        let active = scope.spawn(|| fail(&connector(), listener.local_address()));
        listener.accept(Some(LONG)).unwrap().reject(b"come back tomorrow").unwrap();
        let error = active.join().unwrap();
        let rejection = error.rejection().unwrap();
        assert_eq!(rejection.reason(), Some(RejectReason::ConsumerDefined));
        assert_eq!(rejection.private_data().trimmed(), b"come back tomorrow");
        assert!(
            error.to_string().ends_with("rejected: the program there declined the request, with 18 bytes of data"),
            "{error}"
        );

        // Dropping a request rejects it too.
        let active = scope.spawn(|| fail(&connector(), listener.local_address()));
        drop(listener.accept(Some(LONG)).unwrap());
        assert!(active.join().unwrap().rejection().is_some());
    });
    // Private data beyond the limit is not sent, and the request is still rejected.
    thread::scope(|scope| {
        let active = scope.spawn(|| fail(&connector(), listener.local_address()));
        let error = listener.accept(Some(LONG)).unwrap().reject(&[7; 149]).unwrap_err();
        assert_eq!(error.step(), ConnectStep::Reject);
        assert!(error.to_string().contains("149 bytes of private data"), "{error}");
        assert!(active.join().unwrap().rejection().is_some());
    });
}

#[test]
fn port_in_use_is_an_error() {
    let listener = listener();
    let error = Listener::bind(listener.local_address()).unwrap_err();
    assert_eq!((error.step(), error.kind()), (ConnectStep::Bind, ErrorKind::AddrInUse));
    let text = error.to_string();
    assert!(text.starts_with("rdma_bind_addr: EADDRINUSE"), "{text}");
    assert!(
        text.ends_with(&format!(
            "binding to {}: the port is in use; use another port, or 0 for any",
            listener.local_address()
        )),
        "{text}"
    );

    let all = Listener::bind("0.0.0.0:0").unwrap();
    let error = Listener::bind(all.local_address()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
    assert!(error.to_string().starts_with("rdma_bind_addr: EADDRNOTAVAIL"), "{error}");
    let error = Listener::bind("192.0.2.7:0").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrNotAvailable, "{error}");
}

#[test]
fn missing_response_times_out_after_the_given_time() {
    let listener = listener();
    // The kernel receives the request, but no program does.
    let (error, within) = fail_without_answer(listener.local_address());
    assert_eq!(error.step(), ConnectStep::Connect);
    assert!(error.to_string().contains(&format!("no response within {within:?}")), "{error}");
}

#[test]
#[ignore = "changes an interface of the machine: cargo xtask softroce"]
fn unresponsive_machine_times_out_after_the_given_time() {
    let context = device::open();
    let interface = Interface::of(&context);
    let std::net::IpAddr::V4(own) = address() else { panic!("the device has no IPv4 address") };
    let [a, b, c, _] = own.octets();
    let silent = SocketAddr::from(([a, b, c, 78], 7174));
    // The network may have another interface, and the route uses the one that came up first.
    interface.ip(&format!("route replace {}/32 dev {{}}", silent.ip()));
    interface.ip(&format!("neigh replace {} lladdr 02:00:00:00:00:78 dev {{}} nud permanent", silent.ip()));
    let (error, _) = fail_without_answer(silent);
    interface.ip(&format!("neigh del {} dev {{}}", silent.ip()));
    interface.ip(&format!("route del {}/32 dev {{}}", silent.ip()));
    assert_eq!((error.step(), error.address()), (ConnectStep::Connect, Some(silent)));
}

#[test]
fn disconnect_before_accept_is_an_error_of_the_accept() {
    let listener = listener();
    let resolved = connector().resolve(listener.local_address()).unwrap();
    let end = End::of(resolved.identifier().clone());
    resolved.identifier().connect(&ConnectionParameter::default()).unwrap();
    let request = listener.accept(Some(LONG)).unwrap();
    let peer = request.peer_address();
    let passive = End::of(request.identifier().clone());
    drop((resolved, end));
    // The peer's disconnect arrives, but the kernel does not report it before the accept.
    thread::sleep(Duration::from_millis(200));
    let error = request.accept(&ConnectionParameter::default()).unwrap_err();
    assert_eq!((error.step(), error.address()), (ConnectStep::Accept, peer));
    match error.cause() {
        ConnectCause::Verb(error) => assert_eq!(error.hint(), Some("the peer may have given up")),
        // The disconnect arrived late.
        cause => assert!(matches!(cause, ConnectCause::Rejected(_)), "{cause:?}"),
    }
    drop(passive);

    // The peer disconnects before this side has a queue pair.
    let resolved = connector().resolve(listener.local_address()).unwrap();
    let end = End::of(resolved.identifier().clone());
    resolved.identifier().connect(&ConnectionParameter::default()).unwrap();
    let request = listener.accept(Some(LONG)).unwrap();
    drop((resolved, end));
    let started = Instant::now();
    while request.identifier().get_qp_attr(QueuePairState::Init).is_ok() {
        assert!(started.elapsed() < LONG, "timed out waiting for the peer's disconnect");
        thread::sleep(Duration::from_millis(10));
    }
    let pd = request.device_context().alloc_pd().unwrap();
    let cq = request.device_context().create_cq_builder().build_generic().unwrap();
    let mut builder = pd.create_qp_builder();
    let error = request.identifier().create_qp_generic(builder.setup_send_cq(&cq).setup_recv_cq(&cq)).unwrap_err();
    assert_eq!(error.hint(), Some("the peer may have given up"), "{error}");
    let error = request.identifier().get_qp_attr(QueuePairState::Init).unwrap_err();
    assert!(error.to_string().ends_with("or the peer has given up"), "{error}");
    drop(request);
    // The next client is served.
    let (active, passive) = super::pair(&listener);
    drop((active, passive));
}

#[test]
fn impossible_request_is_refused_before_it_is_sent() {
    let listener = listener();
    let parameter = ConnectionParameter::default();
    let resolve = || connector().resolve(listener.local_address()).unwrap();
    let error = resolve().lookup(&parameter).unwrap_err();
    assert!(error.to_string().contains("Resolved::connect"), "{error}");
    let resolved = resolve();
    let end = End::of(resolved.identifier().clone());
    let error = resolved.connect_with(&parameter, |_, _| Ok::<_, std::fmt::Error>(())).unwrap_err();
    assert!(error.to_string().contains("Resolved::connect"), "{error}");
    let error = resolve().connect_with(&parameter, |_, _| Ok::<_, std::fmt::Error>(())).unwrap_err();
    assert!(error.to_string().contains("setup_qp_number"), "{error}");
    drop(end);
    assert!(listener.accept(Some(Duration::from_millis(50))).unwrap_err().is_timed_out());

    let resolved = resolve();
    let _end = End::of(resolved.identifier().clone());
    resolved.identifier().connect(&parameter).unwrap();
    let request = listener.accept(Some(LONG)).unwrap();
    let error = request.accept(&parameter).unwrap_err();
    assert!(error.to_string().contains("no queue pair was created through the identifier"), "{error}");
}
