//! Tests unmodified layers of `tower` around a client and around a server.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tower::limit::ConcurrencyLimit;
use tower::load_shed::LoadShed;
use tower::retry::{Policy, Retry};
use tower::timeout::Timeout;
use tower::{ServiceBuilder, ServiceExt};

use trespass_rpc::{
    BoxError, Call, Certainty, Channel, Endpoint, Handler, Layered, Options, Reply, RpcError, Server, Serving, Status,
};
use trespass_rpc_ecosystem::{ADDRESS, Service, SumsClient, SumsServer, on_both, pair};

#[test]
fn client_within_a_timeout_cancels_the_call() {
    on_both(|options| async move {
        let (_serving, client, service) = pair(&options).await;
        let hurried = SumsClient::new(Timeout::new(client.channel().clone(), Duration::from_secs(1)));
        let error = hurried.wait(60_000).await.unwrap_err();
        assert_eq!(error.rpc().unwrap().certainty, Certainty::Unknown);
        while service.dropped.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(client.add(1, 2).await, Ok(3));
    });
}

#[test]
fn client_within_a_limit_has_as_many_calls_in_flight() {
    on_both(|options| async move {
        let (_serving, client, service) = pair(&options).await;
        let limited = SumsClient::new(ConcurrencyLimit::new(client.channel().clone(), 2));
        let calls: Vec<_> = (0..6)
            .map(|_| {
                let limited = limited.clone();
                tokio::spawn(async move { limited.wait(20).await })
            })
            .collect();
        let mut most = 0;
        while !calls.iter().all(tokio::task::JoinHandle::is_finished) {
            let ended = calls.iter().filter(|call| call.is_finished()).count();
            most = most.max(service.begun.load(Ordering::SeqCst).saturating_sub(ended));
            tokio::task::yield_now().await;
        }
        for call in calls {
            assert_eq!(call.await.unwrap(), Ok(20));
        }
        // A call may have ended at the server before this side has received its answer.
        assert!((1..=4).contains(&most), "{most} in flight");
        assert_eq!(service.begun.load(Ordering::SeqCst), 6);
    });
}

/// Retries calls if the error allows it.
#[derive(Clone)]
struct Again(Arc<AtomicUsize>);

impl Policy<Call, Reply, RpcError> for Again {
    type Future = Ready<()>;

    fn retry(&mut self, call: &mut Call, outcome: &mut Result<Reply, RpcError>) -> Option<Ready<()>> {
        let error = outcome.as_ref().err()?;
        (error.is_retryable(call.method.is_idempotent) && self.0.fetch_add(1, Ordering::SeqCst) < 100)
            .then(|| ready(()))
    }

    fn clone_request(&mut self, call: &Call) -> Option<Call> {
        call.try_clone()
    }
}

/// Creates a server that rejects calls above its limit, and a client of this server.
async fn shedding(options: &Options) -> (Serving, Channel, Arc<Service>) {
    let service = Arc::new(Service::default());
    let server = SumsServer::shared(Arc::clone(&service));
    let methods = Handler::methods(&server);
    let layered = ServiceBuilder::new()
        .map_err(|_: BoxError| {
            RpcError::new(Status::OVERLOADED, Certainty::Refused, "the maximum number of calls runs")
        })
        .layer_fn(LoadShed::new)
        .layer_fn(|server| ConcurrencyLimit::new(server, 1))
        .service(server);
    let server = Server::new(Layered::new(methods, layered));
    let serving = server.bind_on(&Endpoint::spawn(options).unwrap(), &ADDRESS).await.unwrap();
    let endpoint = Endpoint::spawn(options).unwrap();
    let channel = Channel::connect_on(&endpoint, &serving.local_addr().to_string()).await.unwrap();
    (serving, channel, service)
}

#[test]
fn server_that_sheds_load_refuses_and_retries_succeed() {
    on_both(|options| async move {
        let (_serving, channel, service) = shedding(&options).await;
        let client = SumsClient::over(channel.clone()).unwrap();
        let running = tokio::spawn({
            let client = client.clone();
            async move { client.wait(300).await }
        });
        while service.begun.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let error = client.ping().await.unwrap_err();
        let error = error.rpc().unwrap();
        assert_eq!((error.status, error.certainty), (Status::OVERLOADED, Certainty::Refused));
        // `wait` is not idempotent, but may be retried because the server refused it.
        let attempts = Arc::new(AtomicUsize::new(0));
        let slowly = ServiceBuilder::new()
            .then(|outcome| async move {
                tokio::time::sleep(Duration::from_millis(20)).await;
                outcome
            })
            .service(channel);
        let retrying = SumsClient::new(Retry::new(Again(Arc::clone(&attempts)), slowly.boxed_clone()));
        assert_eq!(retrying.wait(1).await, Ok(1));
        assert_eq!(running.await.unwrap(), Ok(300));
        assert!(attempts.load(Ordering::SeqCst) > 0);
        assert_eq!(service.begun.load(Ordering::SeqCst), 2);
    });
}
