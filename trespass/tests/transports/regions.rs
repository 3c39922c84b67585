//! Tests messages that futures receive in regions.

use std::sync::Arc;

use fastrand::Rng;
use trespass::{Placed, Transport};

use crate::common::{bytes, device};
use crate::futures::{on_runtimes, pair, polled};

/// The READ of a dropped future goes on, and the message is received elsewhere, or in the same place.
#[test]
fn message_for_a_region_is_received_after_its_future_was_dropped() {
    device();
    on_runtimes(|| async {
        let (near, far) = pair(Transport::Rdma).await;
        let regions = [(); 2].map(|()| far.region(200_000).unwrap());
        let (mut dropped, mut in_region) = (0, 0);
        for round in 0..60 {
            let sent = bytes(100_000 + round, round);
            near.send(&sent).await.unwrap();
            let mut place = 0;
            let first = polled(round as u64 % 4, far.recv_into_region(&regions[0], 1..200_000)).await;
            dropped += usize::from(first.is_none());
            let placed = match first {
                Some(placed) => placed.unwrap().unwrap(),
                None if round % 3 == 0 => Placed::Buffer(far.recv().await.unwrap().unwrap()),
                None => {
                    place = round % 2;
                    far.recv_into_region(&regions[place], 1..200_000).await.unwrap().unwrap()
                }
            };
            let mut received = vec![0; sent.len()];
            match placed {
                Placed::Buffer(message) => received.copy_from_slice(&message),
                Placed::Region(length) => {
                    assert_eq!(length, sent.len());
                    regions[place].read_at(1, &mut received).unwrap();
                    in_region += 1;
                }
            }
            assert!(received == sent, "round {round}");
        }
        assert!(dropped > 10 && in_region > 10, "{dropped} futures were dropped, {in_region} messages are in a region");
    });
}

/// A task that waits for notifications does not read what another task receives in a region.
#[test]
fn messages_for_a_region_pass_a_task_that_waits_for_notifications() {
    device();
    on_runtimes(|| async {
        let (near, far) = pair(Transport::Rdma).await;
        let region = far.region(100_000).unwrap();
        let (go, going) = tokio::sync::mpsc::channel(1);
        let send = async |mut going: tokio::sync::mpsc::Receiver<()>| {
            while let Some(()) = going.recv().await {
                near.send(&[7; 100_000]).await.unwrap();
            }
            near.batch().notify(5).submit().await.unwrap();
        };
        let receive = async |go: tokio::sync::mpsc::Sender<()>| {
            for index in 0..10 {
                go.send(()).await.unwrap();
                let placed = far.recv_into_region(&region, 0..100_000).await.unwrap().unwrap();
                // The first message may have been READ before.
                assert!(index == 0 || matches!(placed, Placed::Region(100_000)), "{index}: {placed:?}");
            }
        };
        let (_, (), notified) = tokio::join!(send(going), receive(go), far.notified());
        assert_eq!(notified.unwrap(), Some(5));
    });
}

/// A message that waits for a region does not hold up a program that waits for a notification after it.
#[test]
fn notification_passes_a_long_message_that_no_call_receives_in_a_region() {
    device();
    on_runtimes(|| async {
        let (near, far) = pair(Transport::Rdma).await;
        let region = far.region(100_000).unwrap();
        near.send(b"short").await.unwrap();
        far.recv_into_region(&region, 0..100_000).await.unwrap().unwrap();
        near.send(&[7; 100_000]).await.unwrap();
        near.batch().notify(5).submit().await.unwrap();
        assert_eq!(far.notified().await.unwrap(), Some(5));
        assert_eq!(far.recv().await.unwrap().unwrap().len(), 100_000);
    });
}

/// Two tasks receive in regions, and drop some of their futures, while a third one waits for notifications.
#[test]
fn tasks_that_receive_in_regions_share_the_messages() {
    const MESSAGES: usize = 200;
    device();
    on_runtimes(|| async {
        let (near, far) = pair(Transport::Rdma).await;
        let far = Arc::new(far);
        let receivers = [1, 2].map(|seed| {
            let far = Arc::clone(&far);
            tokio::spawn(async move {
                let (mut random, region, mut count) = (Rng::with_seed(seed), far.region(100_000).unwrap(), 0);
                loop {
                    let most = if random.u64(..4) == 0 { random.u64(..3) } else { u64::MAX };
                    let Some(placed) = polled(most, far.recv_into_region(&region, 0..100_000)).await else {
                        tokio::task::yield_now().await;
                        continue;
                    };
                    let bytes = match placed.unwrap() {
                        None => return count,
                        Some(Placed::Buffer(message)) => message.to_vec(),
                        Some(Placed::Region(length)) => {
                            let mut bytes = vec![0; length];
                            region.read_at(0, &mut bytes).unwrap();
                            bytes
                        }
                    };
                    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a message of {} bytes", bytes.len());
                    region.write_at(0, &[0xee; 1_000]).unwrap();
                    count += 1;
                }
            })
        });
        let notes = tokio::spawn(async move {
            let mut count = 0;
            while far.notified().await.unwrap().is_some() {
                count += 1;
            }
            count
        });
        for index in 0..MESSAGES {
            let length = [10, 5_000, 40_000, 100_000, 20_000][index * 7 % 5];
            near.send(&vec![index as u8; length]).await.unwrap();
            if index % 10 == 0 {
                near.batch().notify(index as u64).submit().await.unwrap();
            }
        }
        near.shutdown().await.unwrap();
        let mut received = 0;
        for receiver in receivers {
            received += receiver.await.unwrap();
        }
        assert_eq!((received, notes.await.unwrap()), (MESSAGES, MESSAGES / 10));
    });
}
