//! Attachments and targets.

use std::io::ErrorKind;
use std::process::Command;
use std::sync::Arc;
use std::sync::Mutex;
use std::task::Poll;
use std::time::Duration;

use trespass::Transport;
use trespass_rpc::{
    Attachment, CallOptions, Certainty, Channel, Context, Endpoint, Memory, Options, Server, Serving, Status, Target,
};
use trespass_rpc_ecosystem::{ADDRESS, on_both, options};

/// Stores one value.
#[trespass_rpc::service(name = "test.Store")]
pub(crate) trait Store {
    async fn put(&self, cx: &Context, value: Attachment, mark: u8, other: Attachment) -> Result<u64, String>;
    async fn get(&self, from: usize, into: Target) -> Result<u64, String>;
    async fn text(&self, into: Target, text: &str) -> Result<(), String>;
    /// Reads a part of the attachment into a part of the memory.
    async fn slice(&self, cx: &Context, value: Attachment, from: u64, length: usize) -> Result<Vec<u8>, String>;
    /// Writes bytes at an offset.
    async fn mark(&self, into: Target, at: u64, bytes: Vec<u8>) -> Result<(), String>;
    /// Writes beyond the target.
    async fn beyond(&self, into: Target) -> Result<(), String>;
    /// Begins to read the attachment. Then keeps the future without polling it (0), drops it (1) or leaks it (2).
    async fn stall(&self, value: Attachment, then: u8) -> Result<(), String>;
    /// Reads both attachments at once, and writes the first to the target.
    async fn both(&self, first: Attachment, second: Attachment, into: Target) -> Result<u64, String>;
    /// Begins to read the attachment, drops the read, and reads it again.
    async fn twice(&self, value: Attachment) -> Result<u64, String>;
    /// Waits, then writes.
    async fn late(&self, into: Target, millis: u64) -> Result<(), String>;
}

#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<Option<Memory>>);

impl Store for Kept {
    async fn put(&self, _: &Context, value: Attachment, mark: u8, other: Attachment) -> Result<u64, String> {
        let other = other.to_vec().await.map_err(|error| error.to_string())?;
        if other != [mark; 5] {
            return Err(format!("{other:?}"));
        }
        let memory = value.read().await.map_err(|error| error.to_string())?;
        let length = memory.len() as u64;
        *self.0.lock().unwrap() = Some(memory);
        Ok(length)
    }

    async fn get(&self, from: usize, into: Target) -> Result<u64, String> {
        let memory = self.0.lock().unwrap().clone().ok_or("nothing is kept")?;
        let length = (memory.len() - from).min(into.len() as usize);
        into.write_from(0, &memory, from..from + length).await.map_err(|error| error.to_string())?;
        Ok(length as u64)
    }

    async fn text(&self, into: Target, text: &str) -> Result<(), String> {
        into.write(3, text.as_bytes()).await.map_err(|error| error.to_string())
    }

    async fn slice(&self, cx: &Context, value: Attachment, from: u64, length: usize) -> Result<Vec<u8>, String> {
        let memory = cx.alloc(length + 7).map_err(|error| error.to_string())?;
        value.read_into(from, &memory, 7..7 + length).await.map_err(|error| error.to_string())?;
        Ok(memory.to_vec().unwrap()[7..].to_vec())
    }

    async fn mark(&self, into: Target, at: u64, bytes: Vec<u8>) -> Result<(), String> {
        into.write(at, &bytes).await.map_err(|error| error.to_string())
    }

    async fn beyond(&self, into: Target) -> Result<(), String> {
        into.write(into.len() - 1, b"xx").await.map_err(|error| error.to_string())
    }

    async fn stall(&self, value: Attachment, then: u8) -> Result<(), String> {
        let mut reading = Box::pin(value.read());
        std::future::poll_fn(|task| {
            assert!(reading.as_mut().poll(task).is_pending());
            Poll::Ready(())
        })
        .await;
        match then {
            0 => std::future::pending().await,
            1 => drop(reading),
            _ => std::mem::forget(reading),
        }
        Ok(())
    }

    async fn both(&self, first: Attachment, second: Attachment, into: Target) -> Result<u64, String> {
        let text = |error: std::io::Error| error.to_string();
        let (first, second) = tokio::join!(first.read(), second.read());
        let (first, second) = (first.map_err(text)?, second.map_err(text)?);
        into.write_from(0, &first, 0..first.len()).await.map_err(text)?;
        Ok((first.len() + second.len()) as u64)
    }

    async fn twice(&self, value: Attachment) -> Result<u64, String> {
        let text = |error: std::io::Error| error.to_string();
        let mut reading = Box::pin(value.read());
        std::future::poll_fn(|task| {
            assert!(reading.as_mut().poll(task).is_pending());
            Poll::Ready(())
        })
        .await;
        drop(reading);
        Ok(value.read().await.map_err(text)?.len() as u64)
    }

    async fn late(&self, into: Target, millis: u64) -> Result<(), String> {
        tokio::time::sleep(Duration::from_millis(millis)).await;
        into.write(0, &vec![9; into.len() as usize]).await.map_err(|error| error.to_string())
    }
}

pub(crate) async fn pair(options: &Options) -> (Serving, StoreClient) {
    let server = Server::new(StoreServer::new(Kept::default()));
    let serving = server.bind_on(&Endpoint::spawn(options).unwrap(), &ADDRESS).await.unwrap();
    let endpoint = Endpoint::spawn(options).unwrap();
    let channel = Channel::connect_on(&endpoint, &serving.local_addr().to_string()).await.unwrap();
    (serving, StoreClient::over(channel).unwrap())
}

pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 255) as u8).collect()
}

#[test]
fn attachments_and_targets_of_any_length_keep_their_bytes() {
    on_both(|options| async move {
        keep_their_bytes(&options, &[0, 1, 100, 8 << 10, (8 << 10) + 1, 100_000, 3 << 20]).await;
    });
}

/// The first attachment takes up all registered memory that the server has for attachments, and the handler keeps it. So
/// the others are read in parts.
#[test]
fn attachments_beyond_the_budget_of_registered_memory_keep_their_bytes() {
    on_both(|mut options| async move {
        options.watermark = 0;
        keep_their_bytes(&options, &[3 << 20, (5 << 20) + 1, 5 << 20, 3 << 20]).await;
    });
}

/// Memory that the program has registered by its address can be neither read nor written here, only by a device.
#[test]
fn memory_of_a_program_is_transferred_beyond_the_budget() {
    on_both(|mut options| async move {
        options.watermark = 0;
        let (_serving, client) = pair(&options).await;
        // Over TCP, nothing is registered.
        let Some(registrar) = client.channel().registrar() else { return };
        let put = client.put(Attachment::from(pattern(3 << 20)), 7, Attachment::from(&[7; 5][..])).await;
        assert_eq!(put, Ok(3 << 20));
        const LENGTH: usize = 2 << 20;
        let mut bytes = [pattern(LENGTH), pattern(LENGTH), vec![0; LENGTH]];
        let memory = bytes.each_mut().map(|bytes| {
            // SAFETY: the bytes live longer than the regions, and are not used before these are dropped.
            Memory::of_region(unsafe { registrar.region_at(bytes.as_mut_ptr(), LENGTH) }.unwrap())
        });
        let attachment = |at: usize| Attachment::of(&memory[at], 0..LENGTH).unwrap();
        for _ in 0..3 {
            let into = Target::of(&memory[2], 0..LENGTH).unwrap();
            assert_eq!(client.both(attachment(0), attachment(1), into).await, Ok(2 * LENGTH as u64));
        }
        drop(memory);
        assert!(bytes[2] == bytes[0]);
    });
}

async fn keep_their_bytes(options: &Options, lengths: &[usize]) {
    let (_serving, client) = pair(options).await;
    for &length in lengths {
        let bytes = pattern(length);
        let put = client.put(Attachment::from(bytes.clone()), 7, Attachment::from(&[7; 5][..])).await;
        assert_eq!(put, Ok(length as u64));
        // The target is a range in the middle of the memory.
        let memory = client.channel().alloc(length + 20).unwrap();
        memory.write_at(0, &vec![1; length + 20]).unwrap();
        let into = Target::of(&memory, 10..length + 10).unwrap();
        assert_eq!(client.get(0, into).await, Ok(length as u64));
        let got = memory.to_vec().unwrap();
        assert!(got[10..length + 10] == bytes && got[..10] == [1; 10] && got[length + 10..] == [1; 10]);
    }
}

#[test]
fn cancelled_reads_let_waiting_reads_continue() {
    on_both(|options| async move {
        let (_serving, client) = pair(&options).await;
        let memory = client.channel().alloc(2 << 20).unwrap();
        let bytes = pattern(2 << 20);
        memory.write_at(0, &bytes).unwrap();
        // The attachments have ten times as many bytes in total as the handlers may read at the same time.
        let calls: Vec<_> = (0..20)
            .map(|_| {
                let (client, memory) = (client.clone(), memory.clone());
                tokio::spawn(async move {
                    let value = Attachment::of(&memory, 0..2 << 20).unwrap();
                    client.slice(value, (2 << 20) - 5, 5).await
                })
            })
            .chain((0..20).map(|_| {
                let (client, memory) = (client.clone(), memory.clone());
                tokio::spawn(async move {
                    let value = Attachment::of(&memory, 0..2 << 20).unwrap();
                    client.put(value, 7, Attachment::from(&[7; 5][..])).await.map(|_| Vec::new())
                })
            }))
            .collect();
        for call in calls.iter().step_by(3) {
            tokio::task::yield_now().await;
            call.abort();
        }
        let mut done = 0;
        for (at, call) in calls.into_iter().enumerate() {
            match call.await {
                Ok(got) if at < 20 => assert_eq!(got.unwrap(), bytes[(2 << 20) - 5..]),
                Ok(got) => assert_eq!(got.unwrap(), []),
                Err(error) => assert!(error.is_cancelled() && at % 3 == 0),
            }
            done += usize::from(at % 3 != 0);
        }
        assert_eq!(done, 26);
    });
}

#[test]
fn unpolled_reads_do_not_block_other_reads() {
    on_both(|options| async move {
        for then in [0, 1, 2] {
            let (_serving, client) = pair(&options).await;
            let memory = client.channel().alloc(4 << 20).unwrap();
            memory.write_at(0, &vec![0; 4 << 20]).unwrap();
            let value = || Attachment::of(&memory, 0..4 << 20).unwrap();
            // The first read takes the whole budget, and the second one waits for it.
            for _ in 0..2 {
                let (caller, value) = (client.clone(), value());
                let stalled = tokio::spawn(async move { caller.stall(value, then).await });
                tokio::task::yield_now().await;
                // The handler of this call starts after that of the stalled call.
                client.mark(Target::of(&memory, 0..1).unwrap(), 0, vec![0]).await.unwrap();
                assert!(then != 0 || !stalled.is_finished());
            }
            assert_eq!(client.slice(value(), 1, 100_000).await, Ok(vec![0; 100_000]));
        }
    });
}

/// Stalled reads hold, or wait for, the part through which the others pass.
#[test]
fn unpolled_reads_do_not_block_other_reads_beyond_the_budget() {
    on_both(|mut options| async move {
        options.watermark = 0;
        const LENGTH: usize = 5 << 20;
        for then in [0, 1, 2] {
            let (_serving, client) = pair(&options).await;
            let memory = client.channel().alloc(LENGTH).unwrap();
            memory.write_at(0, &pattern(LENGTH)).unwrap();
            let value = || Attachment::of(&memory, 0..LENGTH).unwrap();
            for _ in 0..2 {
                let (caller, value) = (client.clone(), value());
                tokio::spawn(async move { caller.stall(value, then).await });
                tokio::task::yield_now().await;
                // The handler of this call starts after that of the stalled call.
                client.mark(Target::of(&memory, 0..1).unwrap(), 0, vec![0]).await.unwrap();
            }
            assert_eq!(client.put(value(), 7, Attachment::from(&[7; 5][..])).await, Ok(LENGTH as u64));
        }
    });
}

/// Over TCP, the bytes of one read arrive at a time.
#[test]
fn handler_reads_several_attachments_at_once() {
    on_both(|options| async move {
        const LENGTH: usize = 1 << 20;
        let (_serving, client) = pair(&options).await;
        let memory = client.channel().alloc(3 * LENGTH).unwrap();
        memory.write_at(0, &pattern(3 * LENGTH)).unwrap();
        let part = |at: usize| Attachment::of(&memory, at * LENGTH..(at + 1) * LENGTH).unwrap();
        for dropped in [false, true] {
            let into = Target::of(&memory, 2 * LENGTH..3 * LENGTH).unwrap();
            if dropped {
                // The dropped read has requested bytes, which still arrive.
                assert_eq!(client.twice(part(0)).await, Ok(LENGTH as u64));
            }
            assert_eq!(client.both(part(0), part(1), into).await, Ok(2 * LENGTH as u64));
            let mut copy = vec![0; LENGTH];
            memory.read_at(2 * LENGTH, &mut copy).unwrap();
            assert!(copy == pattern(3 * LENGTH)[..LENGTH]);
        }
    });
}

#[test]
fn slices_of_slices_read_the_right_offset() {
    on_both(|options| async move {
        let (_serving, client) = pair(&options).await;
        let memory = client.channel().alloc(300_000).unwrap();
        let bytes = pattern(300_000);
        memory.write_at(0, &bytes).unwrap();
        for (from, length) in [(0, 10), (1, 100_000), (99_999, 150_000), (249_999, 1)] {
            let value = Attachment::of(&memory, 50_000..300_000).unwrap();
            let got = client.slice(value, from as u64, length).await.unwrap();
            assert!(got == bytes[50_000 + from..50_000 + from + length], "{from} {length}");
        }
        let value = Attachment::of(&memory, 0..100_000).unwrap();
        assert!(client.slice(value, 99_999, 2).await.is_err());
        assert!(Attachment::of(&memory, 299_999..300_001).is_err());
        assert!(Attachment::of(&memory, 10..300_011).is_err());
    });
}

#[test]
fn handler_cannot_write_beyond_a_target() {
    on_both(|options| async move {
        let (_serving, client) = pair(&options).await;
        let memory = client.channel().alloc(100_000).unwrap();
        memory.write_at(0, &vec![1; 100_000]).unwrap();
        assert!(client.beyond(Target::of(&memory, 0..50_000).unwrap()).await.is_err());
        assert_eq!(client.text(Target::of(&memory, 10..20).unwrap(), "text").await, Ok(()));
        let mut expected = vec![1; 100_000];
        expected[13..17].copy_from_slice(b"text");
        assert!(memory.to_vec().unwrap() == expected);
    });
}

#[test]
fn many_calls_with_keys_share_a_connection() {
    on_both(|options| async move {
        let (_serving, client) = pair(&options).await;
        // Starts more calls than a connection has keys.
        let calls = (0..150_usize).map(|number| {
            let client = client.clone();
            tokio::spawn(async move {
                let bytes = pattern(20_005 + number);
                let value = Attachment::from(bytes.clone());
                client.slice(value, 5, 20_000).await == Ok(bytes[5..20_005].to_vec())
            })
        });
        for call in calls.collect::<Vec<_>>() {
            assert!(call.await.unwrap());
        }
    });
}

#[test]
fn memory_of_a_dropped_call_is_not_reused_while_the_device_may_access_it() {
    on_both(|options| async move {
        let (_serving, client) = pair(&options).await;
        let (mut sent, mut deadline) = (0, 3);
        while sent < 20 {
            let memory = client.channel().alloc(100_000).unwrap();
            let late = client.clone().with(CallOptions::default().timeout(Duration::from_millis(deadline)));
            let error = late.late(Target::of(&memory, 0..100_000).unwrap(), deadline + 2).await.unwrap_err();
            let error = error.rpc().unwrap();
            assert_eq!(error.status, Status::DEADLINE);
            // A busy machine may not send the call within its deadline.
            match error.certainty {
                Certainty::Unknown => sent += 1,
                _ => deadline *= 2,
            }
            drop(memory);
            // The pool reuses this memory only after no peer can access it any more.
            let next = client.channel().alloc(100_000).unwrap();
            next.write_at(0, &vec![1; 100_000]).unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert!(next.to_vec().unwrap() == vec![1; 100_000]);
        }
    });
}

#[test]
fn too_large_attachment_is_refused_before_anything_is_sent() {
    for transport in [Transport::Rdma, Transport::Tcp] {
        let mut options = options(transport);
        options.limits.attachment = 10_000;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (_serving, client) = pair(&options).await;
            let error = client.slice(Attachment::from(vec![0; 10_001]), 0, 1).await.unwrap_err();
            let error = error.rpc().unwrap();
            assert_eq!((error.status, error.certainty), (Status::TOO_LARGE, Certainty::NotSent));
            assert_eq!(client.slice(Attachment::from(vec![5; 10_000]), 9_999, 1).await, Ok(vec![5]));
        });
    }
}

#[test]
fn memory_beyond_the_limit_is_refused() {
    on_both(|mut options| async move {
        options.memory = 3 << 20;
        let (_serving, client) = pair(&options).await;
        let channel = client.channel();
        let kept = channel.alloc(2 << 20).unwrap();
        let error = channel.alloc((1 << 20) + 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert!(error.to_string().contains("Options::memory"), "{error}");
        assert_eq!(channel.alloc(usize::MAX).unwrap_err().kind(), ErrorKind::OutOfMemory);
        channel.alloc(1 << 20).unwrap();
        // A handler allocates as many bytes as its caller states.
        let length = 2 << 20;
        let value = Attachment::of(&kept, 0..length).unwrap();
        assert_eq!(client.slice(value, 0, length).await.map_err(|error| error.rpc().is_none()), Err(true));
        drop(kept);
        channel.alloc(2 << 20).unwrap();
    });
}

#[test]
fn server_reads_attachments_of_callers_that_die() {
    on_both(|options| async move {
        let (_serving, client) = pair(&options).await;
        let other = Endpoint::spawn(&options).unwrap();
        let channel = Channel::connect_on(&other, &client.transport().addresses.1.to_string()).await.unwrap();
        let doomed = Arc::new(StoreClient::over(channel).unwrap());
        let calls: Vec<_> = (0..5)
            .map(|_| {
                let doomed = Arc::clone(&doomed);
                tokio::spawn(
                    async move { doomed.slice(Attachment::from(vec![1; 1 << 20]), 0, 1 << 20).await.map(drop) },
                )
            })
            .collect();
        tokio::task::yield_now().await;
        for call in &calls {
            call.abort();
        }
        drop((doomed, calls, other));
        assert_eq!(client.slice(Attachment::from(vec![5; 100_000]), 9_999, 1).await, Ok(vec![5]));
    });
}

/// Transfers bytes at both ends of a long attachment and target, and at its middle.
async fn ends_keep_their_bytes(options: &Options) {
    const LENGTH: usize = (4 << 30) + (1 << 20);
    let mut options = options.clone();
    options.limits.attachment = LENGTH as u64;
    options.memory = 2 * LENGTH;
    let (_serving, client) = pair(&options).await;
    let memory = client.channel().alloc(LENGTH).unwrap();
    for (at, length) in [(0, 10), ((4 << 30) - 5, 10), ((4 << 30) + 70_000, 20_000), (LENGTH - 9_000, 9_000)] {
        let bytes = pattern(length);
        memory.write_at(at, &bytes).unwrap();
        let whole = Attachment::of(&memory, 0..LENGTH).unwrap();
        assert_eq!(client.slice(whole, at as u64, length).await, Ok(bytes.clone()), "{length} bytes at {at}");
        let inverse: Vec<_> = bytes.iter().map(|byte| !byte).collect();
        let whole = Target::of(&memory, 0..LENGTH).unwrap();
        client.mark(whole, at as u64, inverse.clone()).await.unwrap();
        let mut read = vec![0; length];
        memory.read_at(at, &mut read).unwrap();
        assert!(read == inverse, "{length} bytes at {at}");
    }
}

#[test]
fn attachments_and_targets_beyond_4_gib_keep_their_bytes() {
    // Over TCP, the system provides only the pages that are written.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(ends_keep_their_bytes(&options(Transport::Tcp)));
}

#[test]
#[ignore = "registers 4 GiB of memory, and takes ten seconds"]
fn registered_attachments_and_targets_beyond_4_gib_keep_their_bytes() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(ends_keep_their_bytes(&options(Transport::Rdma)));
}

/// Runs the tests of this module again, with other devices of softrnic.
fn runs_on(devices: &str) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["bulk::", "--skip", "keep_their_bytes_on"]).env("SOFTRNIC_DEVICES", devices);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let passed = text.lines().filter(|line| line.starts_with("test ") && line.ends_with(" ok")).count();
    assert!(output.status.success() && passed >= 10, "{passed} passed\n{text}");
}

#[test]
fn attachments_and_targets_keep_their_bytes_on_iwarp() {
    runs_on("softiw0");
}

/// The connection manager selects another device than the client has assumed.
#[test]
fn attachments_and_targets_keep_their_bytes_on_the_second_device() {
    runs_on("softroce0,soft0");
}
