//! Calls with one answer.

use std::time::Duration;

use trespass_rpc::{CallOptions, Error};
use trespass_rpc_ecosystem::{Refusal, on_both, pair};

#[test]
fn call_returns_the_result_or_the_handlers_error() {
    on_both(|options| async move {
        let (_serving, client, _) = pair(&options).await;
        assert_eq!(client.add(2, 3).await, Ok(5));
        assert_eq!(client.add(-2, 3).await, Err(Error::Application(Refusal::Negative { number: -2 })));
        assert_eq!(client.echo("text").await, Ok("text".to_owned()));
        assert_eq!(client.ping().await, Ok(()));
        assert_eq!(client.zeros(100_000).await, Ok(vec![0; 100_000]));
        let long = "x".repeat(200_000);
        assert_eq!(client.echo(&long).await, Ok(long));
    });
}

#[test]
fn many_calls_are_in_flight_on_one_connection() {
    on_both(|options| async move {
        let (_serving, client, _) = pair(&options).await;
        let calls = (0..5_000).map(|number| {
            let client = client.clone();
            tokio::spawn(async move { client.add(number, 1).await })
        });
        for (number, call) in calls.collect::<Vec<_>>().into_iter().enumerate() {
            assert_eq!(call.await.unwrap(), Ok(number as i64 + 1));
        }
    });
}

#[test]
fn metadata_reaches_the_handler() {
    on_both(|options| async move {
        let (_serving, client, _) = pair(&options).await;
        let client = client.with(CallOptions::default().metadata("user", b"ann").unwrap());
        assert_eq!(client.header("user").await, Ok(Some(b"ann".to_vec())));
        assert_eq!(client.header("none").await, Ok(None));
    });
}

#[test]
fn longest_durations_are_no_limits() {
    on_both(|mut options| async move {
        (options.connect, options.spin) = (Duration::MAX, Duration::MAX);
        (options.limits.keepalive, options.limits.stall) = (Duration::MAX, Duration::MAX);
        let worker = &mut options.worker;
        (worker.keepalive, worker.linger, worker.spin) = (Duration::MAX, Duration::MAX, Duration::MAX);
        let (serving, client, _) = pair(&options).await;
        let patient = client.with(CallOptions::default().timeout(Duration::MAX));
        assert_eq!(patient.add(1, 2).await, Ok(3));
        assert_eq!(patient.wait(1).await, Ok(1));
        assert_eq!(serving.drain(Duration::MAX).await, 0);
    });
}
