//! Tests the connector for `tonic`.

use std::io::{ErrorKind, Read};
use std::net::TcpListener;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::timeout;
use tonic::transport::Endpoint;

/// The task gives up, but the thread that connects waits longer.
#[test]
fn runtime_ends_while_a_connection_is_attempted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::from_shared(format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let attempt = endpoint.connect_with_connector(trespass_rpc::tonic::connector());
    assert!(runtime.block_on(async { timeout(Duration::from_secs(1), attempt).await }).is_err(), "the peer is silent");
    let (mut peer, _) = listener.accept().unwrap();
    drop(runtime);
    peer.set_nonblocking(true).unwrap();
    let mut bytes = [0; 4096];
    let end = loop {
        match peer.read(&mut bytes) {
            Ok(1..) => {}
            end => break end,
        }
    };
    assert_eq!(end.map_err(|error| error.kind()), Err(ErrorKind::WouldBlock), "the attempt has ended");
}
