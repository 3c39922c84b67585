//! Messages, requests and ends of connections.

use std::future::Future;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use canter::{Batch, Core, Error, Remote, Rights};
use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::queue_pair::RcOptions;
use sideway_test_names::Port;

use crate::cores::{address, builder, pair, run};

#[test]
fn messages_arrive_in_order_with_their_lengths() {
    run(builder(), |core| async move {
        let (client, server) = pair(&core).await?;
        assert!(client.private_data().starts_with(b"reply") && server.private_data().starts_with(b"ask"));
        let echo = core.spawn(async move {
            while let Some(message) = server.recv().await? {
                let imm = message.imm();
                let buf = message.into_buf();
                match imm {
                    Some(imm) => server.send_imm(buf, imm + 1).await?,
                    None => server.send(buf).await?,
                };
            }
            Ok::<_, Error>(())
        });
        let pool = core.pool(4096, 4)?;
        for length in [0, 1, 63, 64, 65, 128, 4095, 4096] {
            for imm in [None, Some(7)] {
                let bytes: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
                let mut buf = pool.get().await;
                buf.fill(&bytes)?;
                match imm {
                    Some(imm) => client.send_imm(buf, imm).await?,
                    None => client.send(buf).await?,
                };
                let answer = client.recv().await?.expect("the peer is there");
                assert_eq!((&*answer, answer.imm()), (&*bytes, imm.map(|imm| imm + 1)));
            }
        }
        drop(client);
        echo.await??;
        assert_eq!(pool.free(), 4);
        Ok(())
    });
}

#[test]
fn requests_reach_the_memory_of_the_peer() {
    run(builder(), |core| async move {
        let (client, server) = pair(&core).await?;
        let mut exposed = core.expose(8192, Rights::ReadWrite)?;
        exposed.write_at(100, b"old bytes")?;
        let remote = exposed.remote();
        let pool = core.pool(4096, 2)?;

        let mut buf = pool.get().await;
        buf.set_len(9)?;
        let buf = client.read(buf, remote.slice(100, 9)?).await?;
        assert_eq!(&*buf, b"old bytes");
        drop(client.write(buf, remote.slice(200, 9)?).await?);
        let mut bytes = [0; 9];
        exposed.read_at(200, &mut bytes)?;
        assert_eq!(&bytes, b"old bytes");

        let mut buf = pool.get().await;
        buf.fill(b"four")?;
        client.write_imm(buf, remote.slice(300, 4)?, 9).await?;
        let message = server.recv().await?.expect("the client is there");
        assert_eq!((message.imm(), message.written(), message.len()), (Some(9), Some(4), 0));

        let word = remote.slice(4096, 8)?;
        assert_eq!(client.fetch_add(word, 5).await?, 0);
        assert_eq!(client.compare_and_swap(word, 5, 1 << 40).await?, 5);
        assert_eq!(client.compare_and_swap(word, 5, 6).await?, 1 << 40);

        assert!(matches!(
            client.write(pool.get().await, word).await,
            Err(Error::OutOfRange { length: 4096, size: 8, .. })
        ));
        assert!(matches!(client.fetch_add(remote.slice(4097, 8)?, 1).await, Err(Error::Unaligned { .. })));
        let other = builder().build().expect("the device has room for a core").pool(64, 1)?.get().await;
        assert!(matches!(client.send(other).await, Err(Error::OtherCore)));
        // None of these reached the device.
        assert_eq!(client.fetch_add(word, 0).await?, 1 << 40);
        assert_eq!(pool.free(), 2);
        Ok(())
    });
}

#[test]
fn batches_complete_as_a_whole() {
    run(builder(), |core| async move {
        let (client, server) = pair(&core).await?;
        let mut exposed = core.expose(64 * 128, Rights::ReadWrite)?;
        let (remote, pool, mut batch) = (exposed.remote(), core.pool(128, 64)?, Batch::new());
        for round in 0..8_u8 {
            for index in 0..64_u8 {
                let mut buf = pool.get().await;
                buf.fill(&[index ^ round; 128])?;
                batch.write(buf, remote.slice(usize::from(index) * 128, 128)?);
            }
            client.submit(&mut batch).await?;
            assert_eq!((batch.len(), batch.drain().count(), batch.len()), (64, 64, 0));
            for index in 0..64_u8 {
                let mut bytes = [0; 128];
                exposed.read_at(usize::from(index) * 128, &mut bytes)?;
                assert_eq!(bytes, [index ^ round; 128]);
            }
        }
        batch.write(pool.get().await, remote.slice(0, 128)?);
        for byte in [1, 2] {
            exposed.write_at(0, &[byte; 128])?;
            // A batch that was not drained is posted again.
            client.submit(&mut batch).await?;
            let mut bytes = [0; 128];
            exposed.read_at(0, &mut bytes)?;
            assert_ne!(bytes, [byte; 128]);
        }
        assert_eq!(batch.drain().len(), 1);
        exposed.write_at(0, &[7; 128])?;
        batch.read(pool.get().await, remote.slice(0, 128)?);
        batch.send(pool.get().await);
        client.submit(&mut batch).await?;
        assert_eq!(batch.drain().next().as_deref(), Some(&[7; 128][..]));
        assert_eq!(server.recv().await?.map(|message| message.len()), Some(128));
        client.submit(&mut batch).await?;

        let big = core.pool(8, 65)?;
        while let Some(buf) = big.try_get() {
            batch.send(buf);
        }
        assert!(matches!(client.submit(&mut batch).await, Err(Error::BatchTooLong { length: 65, limit: 64 })));
        assert_eq!(batch.drain().len(), 65);
        assert_eq!((pool.free(), big.free()), (64, 65));
        Ok(())
    });
}

/// The first failed request of a batch decides, and all buffers come back.
#[test]
fn a_failed_request_ends_the_connection_and_returns_the_buffers() {
    run(builder(), |core| async move {
        let (client, server) = pair(&core).await?;
        let exposed = core.expose(64, Rights::Read)?;
        let (pool, mut batch) = (core.pool(64, 8)?, Batch::new());
        for _ in 0..4 {
            batch.write(pool.get().await, exposed.remote());
        }
        let failure = client.submit(&mut batch).await.expect_err("the memory is for reads");
        assert!(failure.to_string().contains("access"), "{failure}");
        assert!(batch.is_empty() && matches!(client.send(pool.get().await).await, Err(Error::Request { .. })));
        assert!(client.recv().await.is_err());
        assert!(server.recv().await.is_err() || server.recv().await?.is_none());
        drop((client, server));
        assert_eq!(pool.free(), 8);
        Ok(())
    });
}

/// The error names the limit, and requests that the end cut off are closed rather than failed.
#[test]
fn a_message_that_exceeds_the_receives_ends_its_connection() {
    run(builder().receive_size(16), |core| async move {
        let (client, server) = pair(&core).await?;
        let (pool, mut batch) = (core.pool(17, 3)?, Batch::new());
        while let Some(buf) = pool.try_get() {
            batch.send(buf);
        }
        assert!(client.submit(&mut batch).await.is_err());
        let end = server.recv().await.expect_err("the message is too long");
        // Soft-RoCE has another status for it.
        let is_known = core.device_context().name().starts_with("soft");
        assert!(matches!(end, Error::MessageTooLong { limit: 16 }) || !is_known, "{end}");
        let later = server.send(pool.get().await).await.expect_err("the connection has ended");
        assert_eq!(later.to_string(), end.to_string());
        Ok(())
    });
}

#[test]
fn messages_of_a_closed_connection_are_received_before_the_end() {
    run(builder(), |core| async move {
        let (client, server) = pair(&core).await?;
        let pool = core.pool(64, 4)?;
        for index in 0..4 {
            let mut buf = pool.get().await;
            buf.fill(&[index; 3])?;
            client.send(buf).await?;
        }
        client.close();
        assert!(matches!(client.send(pool.get().await).await, Err(Error::Closed)));
        for index in 0..4 {
            assert_eq!(server.recv().await?.as_deref(), Some(&[index; 3][..]));
        }
        assert!(server.recv().await?.is_none() && server.recv().await?.is_none());
        assert!(client.recv().await?.is_none());
        Ok(())
    });
}

#[test]
fn a_peer_that_is_not_read_from_loses_its_connection_and_no_other() {
    let core = builder().receives(32).unread(8).build().expect("the device has room for a core");
    let test = async {
        let (loud, deaf) = pair(&core).await?;
        let (client, server) = pair(&core).await?;
        let pool = core.pool(64, 32)?;
        let mut sent = 0;
        while loud.send(pool.get().await).await.is_ok() {
            sent += 1;
            assert!(sent < 1000, "the limit holds");
        }
        let mut received = 0;
        let end = loop {
            match deaf.recv().await {
                Ok(message) => received += usize::from(message.is_some()),
                Err(error) => break error,
            }
        };
        assert!(
            (8..32).contains(&received) && matches!(end, Error::Unread { limit: 8 }),
            "{received} received, then {end}"
        );
        for _ in 0..100 {
            client.send(pool.get().await).await?;
            server.recv().await?.expect("the client is there");
        }
        Ok::<_, Error>(())
    };
    core.run(core.timeout(Duration::from_secs(60), test)).expect("the test ends in time").expect("no call fails");
}

/// A thread for each core; the first listens for all.
#[test]
fn a_request_is_accepted_by_another_core() {
    let (requests, accepted) = std::sync::mpsc::channel();
    let (addresses, bound) = std::sync::mpsc::channel();
    let listening = thread::spawn(move || {
        let core = builder().build().expect("the device has room for a core");
        core.run(async {
            let mut listener = core.listen(address())?;
            addresses.send(listener.local_addr()).expect("the test waits");
            for _ in 0..3 {
                requests.send(listener.accept().await?).expect("the other core waits");
            }
            Ok::<_, Error>(())
        })
    });
    let serving = thread::spawn(move || {
        for request in accepted {
            let core = builder().build().expect("the device has room for a core");
            core.run(async {
                let connection = core.accept(request, b"").await?;
                while let Some(message) = connection.recv().await? {
                    connection.send(message.into_buf()).await?;
                }
                Ok::<_, Error>(())
            })?;
        }
        Ok::<_, Error>(())
    });
    let address = bound.recv().expect("the listener listens");
    for number in 0..3_u8 {
        // Without spinning, each wait is a sleep.
        let core = builder().spin(Duration::ZERO).build().expect("the device has room for a core");
        let asked: Result<(), Error> = core.run(async {
            let (connection, pool) = (core.connect(address, b"").await?, core.pool(16, 1)?);
            for _ in 0..50 {
                let mut buf = pool.get().await;
                buf.fill(&[number; 16])?;
                connection.send(buf).await?;
                assert_eq!(connection.recv().await?.as_deref(), Some(&[number; 16][..]));
            }
            Ok(())
        });
        asked.expect("no call fails");
    }
    listening.join().expect("no panic").expect("no call fails");
    serving.join().expect("no panic").expect("no call fails");
}

#[test]
fn shapes_and_names_that_cannot_be_are_refused() {
    let error = Core::builder("none0").build().expect_err("there is no such device").to_string();
    let name = builder().build().expect("the device has room").device_context().name();
    assert!(error.contains("none0") && error.contains(&name), "{error}");
    let error = builder().depth(u32::MAX).build().expect_err("it exceeds the device").to_string();
    assert!(error.contains(&name), "{error}");
    assert!(builder().connections(0).build().is_err() && builder().unread(0).build().is_err());
    let core = builder().connections(2).build().expect("the device has room");
    assert!(core.pool(0, 1).is_err() && core.pool(1, 0).is_err() && core.pool(usize::MAX, 1).is_err());
    assert!(core.pool(1 << 31, u32::MAX).is_err() && core.expose(0, Rights::Read).is_err());
    core.run(async {
        let _both = pair(&core).await.expect("there is room for one pair");
        let listener = core.listen(address()).expect("a port is free");
        assert!(matches!(core.connect(listener.local_addr(), b"").await, Err(Error::Connections { limit: 2 })));
        let mut buf = core.pool(8, 1).expect("there is memory").get().await;
        assert!(matches!(buf.fill(&[0; 9]), Err(Error::TooLong { length: 9, capacity: 8 })));
    });
}

#[test]
fn a_closed_port_refuses() {
    run(builder(), |core| async move {
        let port = Port::reserve();
        let address = SocketAddr::new(address().ip(), port.number());
        let error = core.connect(address, b"").await.expect_err("no program listens");
        assert!(matches!(&error, Error::Connect(cause) if cause.peer() == Some(address)), "{error}");
        Ok(())
    });
}

#[test]
fn endpoints_connect_without_the_connection_manager() {
    run(builder(), |core| async move {
        let options = RcOptions::new();
        let (one, other) = (core.unconnected(options.clone())?, core.unconnected(options)?);
        let endpoints = (one.endpoint(), other.endpoint());
        let (one, other) = (one.connect(&endpoints.1)?, other.connect(&endpoints.0)?);
        let pool = core.pool(32, 1)?;
        one.send(pool.get().await).await?;
        assert_eq!(other.recv().await?.map(|message| message.len()), Some(32));
        Ok(())
    });
}

/// Remotes travel as bytes.
#[test]
fn a_remote_is_sent_in_a_message() {
    run(builder(), |core| async move {
        let (client, server) = pair(&core).await?;
        let exposed = core.expose(64, Rights::Read)?;
        let mut buf = core.pool(Remote::BYTES, 1)?.get().await;
        buf.fill(&exposed.remote().to_bytes())?;
        client.send(buf).await?;
        let message = server.recv().await?.expect("the client is there");
        let bytes = message.first_chunk().expect("all bytes arrive");
        assert_eq!(Remote::from_bytes(bytes), exposed.remote());
        Ok(())
    });
}

/// The tasks do not run while the core makes a queue pair, so messages of that time are not unread by a fault of a peer.
/// Nor are those of one turn.
#[test]
fn a_new_connection_ends_no_busy_one() {
    run(builder().depth(128).receives(256).unread(4), |core| async move {
        let (client, server) = pair(&core).await?;
        let reading = core.spawn(async move {
            for _ in 0..200 {
                server.recv().await?.expect("the client is there");
            }
            Ok::<_, Error>(())
        });
        let (pool, mut batch) = (core.pool(8, 100)?, Batch::new());
        for is_beside in [true, false] {
            while let Some(buf) = pool.try_get() {
                batch.send(buf);
            }
            {
                let mut sending = std::pin::pin!(client.submit(&mut batch));
                std::future::poll_fn(|context| {
                    assert!(sending.as_mut().poll(context).is_pending());
                    std::task::Poll::Ready(())
                })
                .await;
                let _beside = is_beside.then(|| core.unconnected(RcOptions::new())).transpose()?;
                sending.await?;
            }
            drop(batch.drain());
        }
        reading.await?
    });
}

/// A batch that fails after its connection was dropped concerns no later request.
#[test]
fn failures_of_a_dropped_connection_end_no_other() {
    run(builder(), |core| async move {
        let (client, server) = pair(&core).await?;
        let exposed = core.expose(64, Rights::Read)?;
        let pool = core.pool(64, 8)?;
        for _ in 0..8 {
            let (failing, _peer) = pair(&core).await?;
            let mut batch = Batch::new();
            for _ in 0..3 {
                batch.write(pool.get().await, exposed.remote());
            }
            {
                let mut posted = std::pin::pin!(failing.submit(&mut batch));
                std::future::poll_fn(|context| {
                    assert!(posted.as_mut().poll(context).is_pending());
                    std::task::Poll::Ready(())
                })
                .await;
            }
            drop(failing);
            client.send(pool.get().await).await?;
            server.recv().await?.expect("the client is there");
        }
        drop((client, server));
        assert_eq!(pool.free(), 8);
        Ok(())
    });
}

/// More messages than the core has receives, in connections that are dropped before the messages are received.
#[test]
fn receives_of_dropped_connections_serve_others() {
    run(builder().receives(8), |core| async move {
        let pool = core.pool(8, 2)?;
        for _ in 0..12 {
            let (client, _server) = pair(&core).await?;
            for _ in 0..2 {
                client.send(pool.get().await).await?;
            }
        }
        let (client, server) = pair(&core).await?;
        for _ in 0..20 {
            client.send(pool.get().await).await?;
            server.recv().await?.expect("the client is there");
        }
        Ok(())
    });
}

#[test]
fn a_peer_that_does_not_answer_is_given_up() {
    let hurried = builder().handshake(Duration::from_millis(50)).build().expect("the device has room");
    run(builder(), |core| async move {
        let mut listener = core.listen(address())?;
        // The listener's core does not run meanwhile.
        let error = hurried.run(hurried.connect(listener.local_addr(), b"")).expect_err("no program accepts");
        assert!(error.to_string().contains("no answer within 0.05 s"), "{error}");
        drop(hurried);
        // The request was withdrawn. To accept it fails, and the core goes on.
        let request = listener.accept().await?;
        assert!(matches!(core.accept(request, b"").await, Err(Error::Connect(_))));
        pair(&core).await?;
        Ok(())
    });
}
