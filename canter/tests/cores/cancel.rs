//! Futures that are dropped at random, at every await.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use canter::{Batch, Connection, Error, Pool, Remote, Rights};

use crate::cores::{builder, pair};
use fastrand::Rng;

/// The number of runs. Long runs set the variable.
pub(crate) fn seeds() -> u64 {
    std::env::var("CANTER_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(100)
}

/// The output of a future, or `None` if it was not ready after this number of polls and was dropped.
async fn polled<T>(times: u64, future: impl Future<Output = T>) -> Option<T> {
    let (mut future, mut left) = (pin!(future), times);
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Sends the numbers of one of two senders, and now and then gives up. Returns the numbers whose sends completed.
async fn send(connection: Connection, pool: Pool, remote: Remote, seed: u64, sender: u64) -> Result<Vec<u64>, Error> {
    let (mut random, mut completed, mut batch) = (Rng::with_seed(seed * 2 + sender), Vec::new(), Batch::new());
    for number in (0..200_u64).map(|number| number * 2 + sender) {
        let patience = random.u64(..4);
        let Some(mut buf) = polled(1 + random.u64(..6), pool.get()).await else { continue };
        buf.fill(&number.to_le_bytes())?;
        match random.u64(..6) {
            0 => drop(polled(patience, connection.write(buf, remote)).await.transpose()?),
            1 => drop(polled(patience, connection.read(buf, remote)).await.transpose()?),
            2 => drop(polled(patience, connection.fetch_add(remote, 1)).await.transpose()?),
            3 => {
                batch.write(buf, remote);
                if let Some(other) = pool.try_get() {
                    batch.read(other, remote.slice(0, 8)?);
                }
                if batch.len() > 2 || random.u64(..2) == 0 {
                    polled(patience, connection.submit(&mut batch)).await.transpose()?;
                    drop(batch.drain());
                }
            }
            _ => {
                if polled(patience, connection.send(buf)).await.transpose()?.is_some() {
                    completed.push(number);
                }
            }
        }
    }
    Ok(completed)
}

/// Receives until the end, and now and then gives up and asks again.
async fn receive(connection: Connection, seed: u64) -> Result<Vec<u64>, Error> {
    let (mut random, mut numbers) = (Rng::with_seed(seed), Vec::new());
    loop {
        match polled(random.u64(..3), connection.recv()).await.transpose()? {
            Some(Some(message)) => numbers.push(u64::from_le_bytes(*message.first_chunk().expect("8 bytes"))),
            Some(None) => return Ok(numbers),
            None if random.u64(..2) == 0 => {
                // The next call waits as long as it takes.
                match connection.recv().await? {
                    Some(message) => numbers.push(u64::from_le_bytes(*message.first_chunk().expect("8 bytes"))),
                    None => return Ok(numbers),
                }
            }
            None => {}
        }
    }
}

/// No message is lost that a send completed, none arrives twice or out of order, and all buffers return.
#[test]
fn dropped_futures_lose_no_message_and_no_buffer() {
    for seed in 1..=seeds() {
        let core = builder().depth(4).receives(64).unread(64).build().expect("the device has room");
        let test = async {
            let (client, server) = pair(&core).await?;
            let exposed = core.expose(64, Rights::ReadWrite)?;
            let (pool, remote) = (core.pool(8, 6)?, exposed.remote().slice(8, 8)?);
            let receiving = core.spawn(receive(server, seed));
            let [one, other] =
                [0, 1].map(|sender| core.spawn(send(client.clone(), pool.clone(), remote, seed, sender)));
            let completed = [one.await??, other.await??].concat();
            // The requests that were left to the device still occupy the send queue.
            client.write(pool.get().await, remote).await?;
            client.close();
            drop(client);
            let received = receiving.await??;
            for sender in [0, 1] {
                let of_sender = received.iter().filter(|&number| number % 2 == sender);
                assert!(of_sender.is_sorted_by(|a, b| a < b), "seed {seed}: {received:?}");
            }
            for number in completed {
                assert!(received.contains(&number), "seed {seed}: {number} is lost");
            }
            assert_eq!(pool.free(), 6, "seed {seed}");
            Ok::<_, Error>(())
        };
        let ended = core.run(core.timeout(Duration::from_secs(60), test));
        let ended = ended.unwrap_or_else(|_| panic!("seed {seed}: the test hangs"));
        ended.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// Tasks that are aborted amid their requests leave their connection and its buffers whole.
#[test]
fn aborted_tasks_return_their_buffers() {
    for seed in 1..=seeds() {
        let core = builder().depth(4).receives(64).unread(64).build().expect("the device has room");
        let test = async {
            let mut random = Rng::with_seed(seed);
            let (client, server) = pair(&core).await?;
            let exposed = core.expose(64, Rights::ReadWrite)?;
            let (pool, remote) = (core.pool(8, 6)?, exposed.remote().slice(8, 8)?);
            for sender in [0, 1] {
                let receiving = core.spawn(receive(server.clone(), seed));
                let sending = core.spawn(send(client.clone(), pool.clone(), remote, seed, sender));
                for _ in 0..random.u64(..40) {
                    core.sleep(Duration::ZERO).await;
                }
                sending.abort();
                receiving.abort();
                for ended in [sending.await, receiving.await] {
                    assert!(matches!(ended, Ok(Ok(_)) | Err(Error::NoResult)), "seed {seed}");
                }
            }
            // What the tasks have left to the device precedes this.
            client.write(pool.get().await, remote).await?;
            assert_eq!(pool.free(), 6, "seed {seed}");
            Ok::<_, Error>(())
        };
        let ended = core.run(core.timeout(Duration::from_secs(60), test));
        let ended = ended.unwrap_or_else(|_| panic!("seed {seed}: the test hangs"));
        ended.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// A connection that is dropped amid its requests leaves the others and the pool whole.
#[test]
fn dropped_connections_return_their_buffers() {
    for seed in 1..=seeds() {
        let core = builder().depth(8).receives(16).connections(4).build().expect("the device has room");
        let test = async {
            let mut random = Rng::with_seed(seed);
            let exposed = core.expose(64, Rights::ReadWrite)?;
            let (pool, remote) = (core.pool(8, 8)?, exposed.remote());
            for _ in 0..5 {
                let (client, server) = pair(&core).await?;
                for _ in 0..random.u64(..8) {
                    let Some(buf) = pool.try_get() else { break };
                    match random.u64(..2) {
                        0 => drop(polled(1, client.write(buf, remote)).await),
                        _ => drop(polled(1, client.send(buf)).await),
                    }
                }
                if random.u64(..2) == 0 {
                    drop(client);
                    drop(polled(random.u64(..3), server.recv()).await);
                } else {
                    drop(server);
                }
            }
            assert_eq!(pool.free(), 8, "seed {seed}");
            Ok::<_, Error>(())
        };
        let ended = core.run(core.timeout(Duration::from_secs(60), test));
        let ended = ended.unwrap_or_else(|_| panic!("seed {seed}: the test hangs"));
        ended.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}
