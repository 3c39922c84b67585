//! Tests streams of items in both directions, and calls from server to client.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context as TaskContext, Poll};

use trespass_rpc::generated::{set_items, streaming};
use trespass_rpc::{Answers, Call, Channel, Endpoint, Error, Postcard, Server, Status, Stream};
use trespass_rpc_ecosystem::{ADDRESS, Listed, Refusal, Service, SumsClient, SumsServer, on_both, pair};

#[test]
fn answers_arrive_in_order_beyond_the_window_and_end_with_the_error() {
    on_both(|options| async move {
        let (_serving, client, _) = pair(&options).await;
        // The items have a total length of 2 MB, which is eight windows.
        let mut answers = client.count(2_001, 1_000);
        for number in 0..2_001 {
            let answer = answers.next().await.unwrap();
            assert_eq!(answer, Ok((number, vec![number as u8; 1_000])));
        }
        assert_eq!(answers.next().await, Some(Err(Error::Application(Refusal::Negative { number: 1 }))));
        assert_eq!(answers.next().await, None);
        assert_eq!(client.count(0, 0).next().await, None);
    });
}

#[test]
fn dropped_stream_ends_the_handler() {
    on_both(|options| async move {
        let (_serving, client, _) = pair(&options).await;
        for _ in 0..20 {
            let mut answers = client.count(u64::MAX - 1, 10_000);
            assert_eq!(answers.next().await.unwrap(), Ok((0, vec![0; 10_000])));
        }
        // Waits until the calls have ended; otherwise no credit would be left for new ones.
        while !client.channel().is_idle() {
            tokio::task::yield_now().await;
        }
        assert_eq!(client.add(1, 1).await, Ok(2));
    });
}

#[test]
fn items_of_the_caller_reach_the_handler() {
    on_both(|options| async move {
        let (_serving, client, _) = pair(&options).await;
        assert_eq!(client.sum(5, Listed(0..50_000)).await, Ok(5 + (0..50_000).sum::<i64>()));
        assert_eq!(client.sum(5, Listed(0..0)).await, Ok(5));
        let mut doubled = client.double(Listed(0..30_000));
        for number in 0..30_000 {
            assert_eq!(doubled.next().await, Some(Ok(2 * number)));
        }
        assert_eq!(doubled.next().await, None);
    });
}

/// An endless stream of items, which counts the items that were taken.
struct Counted(Arc<AtomicU64>);

impl Stream for Counted {
    type Item = i64;

    fn poll_next(self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<Option<i64>> {
        Poll::Ready(Some(self.0.fetch_add(1, Ordering::Relaxed) as i64))
    }
}

#[test]
fn sender_waits_for_a_receiver_that_takes_nothing() {
    on_both(|options| async move {
        let (_serving, client, _) = pair(&options).await;
        let taken = Arc::new(AtomicU64::new(0));
        let mut doubled = client.double(Counted(Arc::clone(&taken)));
        assert_eq!(doubled.next().await, Some(Ok(0)));
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        // Two windows of 256 KiB have credit for fewer than 20,000 items, because each item costs 33 bytes.
        assert!(taken.load(Ordering::Relaxed) < 20_000, "{taken:?}");
    });
}

#[test]
fn server_calls_its_caller() {
    on_both(|options| async move {
        let server = Server::new(SumsServer::new(Service::default()));
        let serving = server.bind_on(&Endpoint::spawn(&options).unwrap(), &ADDRESS).await.unwrap();
        let endpoint = Endpoint::spawn(&options).unwrap();
        let own = SumsServer::new(Service::default());
        let channel = Channel::connect_serving(&endpoint, &serving.local_addr().to_string(), own).await.unwrap();
        let client = SumsClient::over(channel).unwrap();
        assert_eq!(client.back(41).await, Ok(42));
        // The server's call fails if the caller serves no methods.
        let channel = Channel::connect_on(&endpoint, &serving.local_addr().to_string()).await.unwrap();
        let client = SumsClient::over(channel).unwrap();
        assert_eq!(client.back(41).await, Err(Error::Application(Refusal::Negative { number: -2 })));
    });
}

/// A stream that ends immediately, and panics if it is polled again.
struct Empty(bool);

impl Stream for Empty {
    type Item = i64;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<Option<i64>> {
        assert!(!std::mem::replace(&mut self.0, true), "polled after its end");
        Poll::Ready(None)
    }
}

#[test]
fn ended_stream_is_not_polled_again_while_its_call_waits_for_credit() {
    on_both(|mut options| async move {
        options.limits.calls = 1;
        let (_serving, client, _) = pair(&options).await;
        let first = tokio::spawn({
            let client = client.clone();
            async move { client.wait(50).await }
        });
        let second = client.sum(7, Empty(false));
        let (first, second) = tokio::join!(first, second);
        assert_eq!((first.unwrap(), second), (Ok(50), Ok(7)));
    });
}

/// A number that can be encoded only if it is at most 2.
#[derive(Debug)]
struct Small(i64);

impl serde::Serialize for Small {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            ..3 => self.0.serialize(serializer),
            _ => Err(serde::ser::Error::custom("too large")),
        }
    }
}

#[test]
fn item_that_does_not_encode_cancels_the_call() {
    on_both(|options| async move {
        let (_serving, client, _) = pair(&options).await;
        let method = SumsClient::<Channel>::METHODS.iter().find(|method| method.name == "test.Sums/double").unwrap();
        let mut call = Call::new(method);
        call.encode::<Postcard, _>(&()).unwrap();
        set_items::<Postcard, _>(&mut call, Listed((0..5).map(Small)));
        let mut answers: Answers<Postcard, i64, Refusal> = streaming(client.channel().clone(), call);
        let mut seen = Vec::new();
        let error = loop {
            match answers.next().await.expect("an error") {
                Ok(item) => seen.push(item),
                Err(error) => break error,
            }
        };
        assert_eq!(error.rpc().unwrap().status, Status::INVALID);
        assert!(seen.len() <= 3, "{seen:?}");
        assert!(answers.next().await.is_none());
        assert_eq!(client.add(1, 2).await, Ok(3));
    });
}
