//! Tests the connector for `tonic`.

use std::future::poll_fn;
use std::io::{ErrorKind, Read};
use std::net::TcpListener;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::io::AsyncWrite;
use tokio::runtime::Builder;
use tokio::time::timeout;
use tonic::codegen::Service;
use tonic::transport::Endpoint;
use tonic::transport::server::Connected;
use trespass::{Handle, Transport, Worker};
use trespass_rpc::Stream;
use trespass_rpc::tonic::{connector_on, incoming_on};
use trespass_rpc_ecosystem::{ADDRESS, options};

#[test]
fn attempt_to_connect_ends_with_its_future() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::from_shared(format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let attempt = endpoint.connect_with_connector(trespass_rpc::tonic::connector());
    assert!(runtime.block_on(async { timeout(Duration::from_secs(1), attempt).await }).is_err(), "the peer is silent");
    let (mut peer, _) = listener.accept().unwrap();
    drop(runtime);
    peer.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut bytes = Vec::new();
    let end = peer.read_to_end(&mut bytes).map(drop).map_err(|error| error.kind());
    assert!(matches!(end, Ok(()) | Err(ErrorKind::ConnectionReset)), "the attempt goes on: {end:?}");
}

#[test]
fn worker_of_the_program_chooses_the_transport() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    for (transport, name) in [(Transport::Rdma, "soft0"), (Transport::Tcp, "TCP")] {
        let handle = Handle::new(&options(transport).worker).unwrap();
        let found = runtime.block_on(async {
            let mut incoming = incoming_on(&handle, &**ADDRESS).unwrap();
            let uri = format!("http://{}", incoming.local_addr().unwrap()).parse().unwrap();
            let (mut connector, accepted) =
                (connector_on(&handle), poll_fn(|context| Pin::new(&mut incoming).poll_next(context)));
            let (connected, accepted) = tokio::join!(connector.call(uri), accepted);
            let ends = [connected.unwrap().into_inner(), accepted.unwrap().unwrap()];
            ends.map(|end| end.connect_info().transport)
        });
        assert!(found.iter().all(|found| found.contains(name)), "{found:?}");
    }
}

/// What waits cannot be withdrawn when a call is cancelled.
#[test]
fn little_of_a_connection_waits_to_be_sent() {
    let mut peer = Worker::new(&options(Transport::Rdma).worker).unwrap();
    let listener = peer.listen(ADDRESS.parse().unwrap()).unwrap();
    let uri = format!("http://{}", peer.local_addr(listener).unwrap()).parse().unwrap();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let written = runtime.block_on(async {
        let (mut connecting, mut accepted) = (trespass_rpc::tonic::connector().call(uri), None);
        let connected = poll_fn(|context| {
            peer.poll();
            accepted = accepted.or_else(|| peer.accept(listener));
            context.waker().wake_by_ref();
            connecting.as_mut().poll(context)
        });
        let mut stream = connected.await.unwrap().into_inner();
        // The peer receives nothing from here on.
        let mut written = 0;
        poll_fn(|context| {
            while let Poll::Ready(count) = Pin::new(&mut stream).poll_write(context, &[7; 1 << 20]) {
                written += count.unwrap();
            }
            Poll::Ready(())
        })
        .await;
        written
    });
    assert!((256 << 10..512 << 10).contains(&written), "{written} bytes wait");
}
