//! Tests streams in tokio, on its single-threaded runtime.

use std::time::Duration;

use crate::common::{bytes, device, on_both, pair, worker};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Handle as RuntimeHandle, Runtime};
use tokio::time::timeout;
use trespass::tokio::{Reader, Stream};
use trespass::{Acceptor, Connection, Handle, Transport};

/// A time limit that only a hung operation reaches.
const LONG: Duration = Duration::from_secs(60);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Two workers, and the two ends of a connection between them.
struct Ends {
    handles: [Handle; 2],
    near: Stream,
    far: Stream,
}

impl Ends {
    fn new(transport: Transport) -> Self {
        let handles = [(); 2].map(|()| worker(transport));
        let acceptor = Acceptor::bind_on(&handles[0], device()).unwrap();
        let near = Connection::connect_on(&handles[1], acceptor.local_addr(), None).unwrap();
        let far = acceptor.accept().unwrap();
        let [near, far] = [near, far].map(|end| Stream::from(trespass::net::Stream::from(end)));
        Self { handles, near, far }
    }

    fn drive(&self) {
        self.handles.iter().for_each(|handle| handle.drive_in_tokio().unwrap());
    }

    /// Exchanges short messages, with a pause before some of them, so that both sides also sleep.
    async fn exchange(&self) {
        let (mut near, mut far) = (self.near.clone(), self.far.clone());
        let echo = async move {
            for _ in 0..200 {
                let byte = far.read_u8().await.unwrap();
                far.write_u8(byte).await.unwrap();
            }
        };
        let calls = async move {
            for round in 0..200 {
                if round % 50 == 0 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                near.write_u8(round).await.unwrap();
                assert_eq!(near.read_u8().await.unwrap(), round);
            }
        };
        // The time limit does not poll the exchange: that would hide a lost wake-up.
        timeout(LONG, tokio::spawn(async { tokio::join!(echo, calls) })).await.unwrap().unwrap();
    }
}

#[test]
fn worker_driven_by_a_task_serves_streams() {
    on_both(|transport| {
        let ends = Ends::new(transport);
        runtime().block_on(async {
            ends.drive();
            ends.exchange().await;
        });
        let threads = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        threads.block_on(async {
            ends.drive();
            ends.exchange().await;
        });
    });
}

#[test]
fn reader_waits_and_returns_all_bytes() {
    const LENGTH: usize = 3 << 20;
    on_both(|transport| {
        let ends = Ends::new(transport);
        runtime().block_on(async {
            ends.drive();
            let (mut near, mut far) = (ends.near.clone(), Reader::new(ends.far.clone()));
            let writes = async move {
                near.write_all(&bytes(LENGTH, 1)).await.unwrap();
                near.write_all(b"line\n").await.unwrap();
                near.shutdown().await.unwrap();
            };
            let reads = async move {
                let mut got = vec![0; LENGTH];
                far.read_exact(&mut got[..1_000]).await.unwrap();
                let mut at = 1_000;
                while at < LENGTH {
                    let some = far.fill_buf().await.unwrap();
                    let count = some.len().min(LENGTH - at);
                    got[at..at + count].copy_from_slice(&some[..count]);
                    far.consume(count);
                    at += count;
                }
                assert!(got == bytes(LENGTH, 1));
                let mut rest = String::new();
                assert_eq!(far.read_to_string(&mut rest).await.unwrap(), 5);
                assert_eq!(rest, "line\n");
            };
            timeout(LONG, tokio::spawn(async { tokio::join!(writes, reads) })).await.unwrap().unwrap();
        });
    });
}

#[test]
fn worker_serves_threads_after_its_runtime_was_dropped() {
    on_both(|transport| {
        let ends = Ends::new(transport);
        runtime().block_on(async {
            ends.drive();
            ends.exchange().await;
        });
        let (mut near, mut far) = (ends.near.into_blocking(), ends.far.into_blocking());
        near.set_read_timeout(Some(LONG)).unwrap();
        far.set_read_timeout(Some(LONG)).unwrap();
        let mut byte = [0];
        std::io::Write::write_all(&mut near, &[7]).unwrap();
        std::io::Read::read_exact(&mut far, &mut byte).unwrap();
        assert_eq!(byte, [7]);
    });
}

/// The task that drives the worker belongs to a runtime that makes no progress.
#[test]
fn worker_serves_streams_while_its_runtime_is_blocked() {
    on_both(|transport| {
        let ends = Ends::new(transport);
        let blocked = runtime();
        blocked.block_on(async {
            ends.drive();
            ends.exchange().await;
        });
        runtime().block_on(ends.exchange());
        drop(blocked);
        let idle = runtime();
        let entered = idle.enter();
        ends.drive();
        drop(entered);
        runtime().block_on(ends.exchange());
    });
}

#[test]
fn runtime_without_io_is_an_error_and_leaves_the_worker_to_its_thread() {
    let ends = Ends::new(Transport::Tcp);
    let without_io = Builder::new_current_thread().enable_time().build().unwrap();
    without_io.block_on(async {
        for _ in 0..2 {
            let error = ends.handles[0].drive_in_tokio().unwrap_err();
            assert!(error.to_string().contains("call enable_all()"), "{error}");
        }
        ends.exchange().await;
    });
    runtime().block_on(async {
        ends.drive();
        ends.exchange().await;
    });
    assert!(ends.handles[0].drive_in_tokio().is_err());
}

#[test]
fn task_ends_with_the_last_user_of_its_worker() {
    let ends = Ends::new(Transport::Tcp);
    let runtime = runtime();
    runtime.block_on(async {
        ends.drive();
        ends.exchange().await;
        drop(ends);
        let metrics = RuntimeHandle::current().metrics();
        timeout(LONG, async {
            while metrics.num_alive_tasks() != 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await
        .unwrap();
    });
}

#[test]
fn tasks_read_and_write_at_once() {
    on_both(|transport| {
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (left, right) = pair(transport);
            let [mut left, mut right] = [left, right].map(|end| Stream::from(trespass::net::Stream::from(end)));
            let echo = tokio::spawn(async move {
                let (mut reader, mut writer) = (right.clone(), &mut right);
                let copied = tokio::io::copy(&mut reader, &mut writer).await.unwrap();
                writer.shutdown().await.unwrap();
                copied
            });
            let sent = bytes(1 << 20, 5);
            let mut writer = left.clone();
            let expected = sent.clone();
            let writing = tokio::spawn(async move {
                writer.write_all(&sent).await.unwrap();
                writer.flush().await.unwrap();
                AsyncWriteExt::shutdown(&mut writer).await.unwrap();
            });
            let mut got = Vec::new();
            left.read_to_end(&mut got).await.unwrap();
            assert!(got == expected);
            writing.await.unwrap();
            assert_eq!(echo.await.unwrap(), 1 << 20);
        });
    });
}
