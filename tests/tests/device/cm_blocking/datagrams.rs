//! Queue pairs for datagrams, looked up.

use std::net::SocketAddr;
use std::thread;

use sideway::ibverbs::queue_pair::QueuePair;
use sideway::rdmacm::communication_manager::SidrStatus;
use sideway::rdmacm::{ConnectCause, ConnectStep, ConnectionParameter, Connector, Listener, PortSpace};
use sideway_tests::connections::{LONG, address};
use sideway_tests::programs::port;

fn connector() -> Connector {
    let mut connector = super::connector();
    connector.setup_port_space(PortSpace::Udp);
    connector
}

#[test]
fn lookup_returns_the_destination() {
    let listener = Listener::builder().setup_port_space(PortSpace::Udp).bind((address(), 0)).unwrap();
    thread::scope(|scope| {
        let active = scope.spawn(|| {
            let resolved = connector().resolve(listener.local_address()).unwrap();
            resolved.lookup(ConnectionParameter::default().setup_private_data(b"which?")).unwrap()
        });
        let request = listener.accept(Some(LONG)).unwrap();
        assert!(request.is_lookup() && request.info().is_none());
        assert_eq!(request.private_data().trimmed(), b"which?");
        let pd = request.device_context().alloc_pd().unwrap();
        let cq = request.device_context().create_cq_builder().build_generic().unwrap();
        let mut builder = pd.create_ud_qp_builder();
        let qp = request.identifier().create_qp_generic(builder.setup_send_cq(&cq).setup_recv_cq(&cq)).unwrap();
        request.accept_lookup(ConnectionParameter::default().setup_private_data(b"this")).unwrap();
        let found = active.join().unwrap();
        assert_eq!((found.qp_number(), found.private_data().trimmed()), (qp.qp_number(), &b"this"[..]));
        assert!(pd.create_ah(found.address_handle_attribute()).is_ok());

        let active = scope.spawn(|| connector().resolve(listener.local_address()).unwrap().lookup(&Default::default()));
        let error = listener.accept(Some(LONG)).unwrap().accept(&Default::default()).unwrap_err();
        assert!(error.to_string().contains("Request::accept_lookup"), "{error}");
        // The request was dropped, which rejects it.
        let error = active.join().unwrap().unwrap_err();
        let ConnectCause::Unreachable(unreachable) = error.cause() else { panic!("{error:?}") };
        assert_eq!(unreachable.sidr_status(), Some(SidrStatus::Rejected));
    });
}

#[test]
fn port_without_a_listener_has_no_queue_pair() {
    let to = SocketAddr::new(address(), port());
    let error = connector().resolve(to).unwrap().lookup(&Default::default()).unwrap_err();
    assert_eq!(error.step(), ConnectStep::Lookup);
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!(error.to_string(), format!("looking up the queue pair at {to}: unreachable: no listener on that port"));
    let error = connector().resolve(to).unwrap().connect(&Default::default()).unwrap_err();
    assert!(error.to_string().contains("Resolved::lookup"), "{error}");
}
