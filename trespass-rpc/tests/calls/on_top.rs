//! Tests extensions of channels and servers: connection pools, health, calls without a runtime.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sideway_test_names::Port;
use trespass::{Kind, Transport};
use trespass_rpc::{
    CallOptions, Certainty, Channel, Endpoint, Health, HealthReporter, HealthsClient, Options, Pool, Server, Serving,
    Status, blocking,
};
use trespass_rpc_ecosystem::{ADDRESS, HOST, LONG, Listed, Service, SumsClient, SumsServer, on_both, options, within};

async fn serve(options: &Options, service: &Arc<Service>, address: &str) -> Serving {
    let endpoint = Endpoint::spawn(options).unwrap();
    // The address of an earlier server may stay in use for a moment.
    loop {
        let server = Server::new(SumsServer::shared(Arc::clone(service)));
        match server.bind_on(&endpoint, address).await {
            Ok(serving) => return serving,
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {}
            Err(error) => panic!("{error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Tests for two former defects: a call that timed out ended the attempt to connect, and the time limit of a call did
/// not include connecting.
#[tokio::test]
async fn pool_continues_connecting_when_a_call_is_cancelled() {
    let silent = tokio::net::TcpListener::bind(ADDRESS.as_str()).await.unwrap();
    let endpoint = Endpoint::spawn(&options(Transport::Tcp)).unwrap();
    let hurried = CallOptions::default().timeout(Duration::from_millis(30));
    let client = SumsClient::new(Pool::new(&endpoint, silent.local_addr().unwrap().to_string())).with(hurried);
    for _ in 0..5 {
        let error = client.ping().await.unwrap_err();
        let error = error.rpc().unwrap();
        assert_eq!((error.status, error.certainty), (Status::DEADLINE, Certainty::NotSent), "{error}");
    }
    let _first = within(silent.accept()).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(50), silent.accept()).await.is_err(), "a second attempt");
}

#[test]
fn pool_returns_to_rdma_after_a_fall_back_to_tcp() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let service = Arc::new(Service::default());
        let over_tcp = serve(&options(Transport::Tcp), &service, &ADDRESS).await;
        let address = over_tcp.local_addr().to_string();
        for connections in [1, 3] {
            let endpoint = Endpoint::spawn(&options(Transport::Any)).unwrap();
            let pool = Pool::new(&endpoint, address.as_str()).connections(connections);
            let client = SumsClient::new(pool.clone());
            let mut ends = HashSet::new();
            let begun = Instant::now();
            // The first attempts fail; the connections over TCP stay.
            while begun.elapsed() < Duration::from_millis(1_500) {
                assert_eq!(client.ping().await, Ok(()));
                let channel = pool.channel().await.unwrap();
                assert_eq!(channel.transport().kind, Kind::Tcp);
                ends.insert(channel.transport().addresses.0);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(ends.len(), connections);
            // RDMA has ports of its own.
            let over_rdma = serve(&options(Transport::Rdma), &service, &address).await;
            let all_over = async |kind| {
                let mut in_turn = 0;
                while in_turn < connections {
                    assert_eq!(client.ping().await, Ok(()));
                    in_turn = if pool.channel().await.unwrap().transport().kind == kind { in_turn + 1 } else { 0 };
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            let begun = service.begun.load(Ordering::SeqCst);
            let running = tokio::spawn({
                let client = client.clone();
                async move { client.wait(60_000).await }
            });
            while service.begun.load(Ordering::SeqCst) == begun {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            within(all_over(Kind::Rdma)).await;
            assert!(!running.is_finished(), "the call in flight stays on its connection");
            running.abort();
            // RDMA is lost, and comes back.
            drop(over_rdma);
            let lost = async {
                while client.ping().await.is_err() || pool.channel().await.unwrap().transport().kind == Kind::Rdma {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            within(lost).await;
            let _over_rdma = serve(&options(Transport::Rdma), &service, &address).await;
            within(all_over(Kind::Rdma)).await;
        }
    });
}

#[test]
fn pool_connects_with_the_first_call_and_again_after_the_server_was_away() {
    on_both(|options| async move {
        let service = Arc::new(Service::default());
        // The port remains reserved while the server is down.
        let port = Port::reserve();
        let address = format!("{}:{}", *HOST, port.number());
        let serving = serve(&options, &service, &address).await;
        for connections in [1, 3] {
            let pool = Pool::new(&Endpoint::spawn(&options).unwrap(), address.as_str()).connections(connections);
            let client = SumsClient::new(pool);
            let calls: Vec<_> = (0..20)
                .map(|number| {
                    let client = client.clone();
                    tokio::spawn(async move { client.echo(&format!("{number}")).await })
                })
                .collect();
            for (number, call) in calls.into_iter().enumerate() {
                assert_eq!(call.await.unwrap(), Ok(number.to_string()));
            }
        }
        let client = SumsClient::new(Pool::new(&Endpoint::spawn(&options).unwrap(), address.as_str()));
        let running = tokio::spawn({
            let client = client.clone();
            async move { client.wait(60_000).await }
        });
        while service.begun.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(serving);
        let error = running.await.unwrap().unwrap_err();
        assert_eq!(error.rpc().unwrap().certainty, Certainty::Unknown);
        // While the server is down, the error of a call states that nothing was sent. The pool pauses between its
        // attempts.
        let error = client.ping().await.unwrap_err();
        let error = error.rpc().unwrap();
        assert_eq!((error.status, error.certainty), (Status::UNAVAILABLE, Certainty::NotSent));
        assert!(error.detail.starts_with(&format!("cannot connect to {}:", *HOST)), "{error}");
        let _serving = serve(&options, &service, &address).await;
        while let Err(error) = client.ping().await {
            assert_eq!(error.rpc().unwrap().certainty, Certainty::NotSent, "{error:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

#[test]
fn health_service_reports_the_status_that_the_server_has_set() {
    on_both(|options| async move {
        let health = HealthReporter::default();
        let server = Server::new(SumsServer::new(Service::default())).and(health.service());
        let serving = server.bind_on(&Endpoint::spawn(&options).unwrap(), &ADDRESS).await.unwrap();
        let endpoint = Endpoint::spawn(&options).unwrap();
        let channel = Channel::connect_on(&endpoint, &serving.local_addr().to_string()).await.unwrap();
        let client = HealthsClient::over(channel.clone()).unwrap();
        assert_eq!(client.check("").await, Ok(Health::Serving));
        assert_eq!(client.check("test.Sums").await, Ok(Health::Unknown));
        health.set("test.Sums", Health::NotServing);
        assert_eq!(client.check("test.Sums").await, Ok(Health::NotServing));
        assert_eq!(SumsClient::over(channel).unwrap().add(1, 2).await, Ok(3));
    });
}

#[test]
fn blocking_calls_need_no_runtime() {
    for transport in [Transport::Rdma, Transport::Tcp] {
        let server = Endpoint::thread(&options(transport)).unwrap();
        let bound = Server::new(SumsServer::new(Service::default())).bind_on(&server, &ADDRESS);
        let serving = blocking::wait(bound).unwrap();
        let client = SumsClient::over(blocking::connect(&serving.local_addr().to_string()).unwrap()).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let client = &client;
                scope.spawn(move || {
                    for number in 0..50 {
                        assert_eq!(blocking::wait(client.add(number, thread)), Ok(number + thread));
                    }
                    let counted = blocking::iter(client.count(10, 3)).map(|item| item.unwrap().0);
                    assert_eq!(counted.collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
                    assert_eq!(blocking::wait(client.sum(1, Listed(0..10))), Ok(46));
                });
            }
        });
        assert_eq!(blocking::wait(serving.drain(LONG)), 0);
    }
}
