//! Tests regions of two workers in one process.

use std::time::{Duration, Instant};

use super::*;
use crate::backend::verbs::has_windows;
use crate::proto::{Placed, Remote};
use crate::{Acceptor, Handle, Options, Transport};

fn pair(transport: Transport) -> (Connection, Connection) {
    softrnic::register().unwrap();
    let [server, client] = [(); 2].map(|()| Handle::new(&Options { transport, ..Options::default() }).unwrap());
    // If the device belongs to the kernel, one of its addresses is needed, because 127.0.0.1 leads to no such device.
    let host = std::env::var("TRESPASS_TEST_ADDRESS").unwrap_or_else(|_| "127.0.0.1".to_owned());
    let acceptor = Acceptor::bind_on(&server, (host.as_str(), 0)).unwrap();
    let client = Connection::connect_on(&client, acceptor.local_addr(), None).unwrap();
    (acceptor.accept().unwrap(), client)
}

#[test]
fn a_batch_larger_than_the_send_queue_arrives_whole() {
    let (server, client) = pair(Transport::Rdma);
    let (theirs, mine) = (server.region(64_000).unwrap(), client.region(64_000).unwrap());
    let bytes: Vec<u8> = (0..64_000_u32).map(|n| (n / 64) as u8).collect();
    mine.write_at(0, &bytes).unwrap();
    let grant = Grant::writable(&server, &theirs, 0..64_000).unwrap();
    server.send(&grant.key().to_bytes()).unwrap();
    let key = RegionKey::from_bytes(&client.recv().unwrap().unwrap()).unwrap();
    let mut batch = client.batch();
    for n in 0..1000 {
        batch = batch.put((&mine, n * 64..(n + 1) * 64), (&key, n as u64 * 64));
    }
    let ticket = batch.notify(7).submit().unwrap();
    assert_eq!(server.recv().unwrap().unwrap().notification(), Some(7));
    let mut arrived = vec![0; 64_000];
    theirs.read_at(0, &mut arrived).unwrap();
    assert_eq!(arrived, bytes);
    ticket.wait().unwrap();
    assert!(client.send(b"the connection goes on").is_ok());
}

#[test]
fn gets_complete_before_their_notification_is_sent() {
    let (server, client) = pair(Transport::Rdma);
    let (theirs, mine) = (server.region(4096).unwrap(), client.region(4096).unwrap());
    theirs.write_at(1000, b"there").unwrap();
    let grant = Grant::readable(&server, &theirs, 1000..1005).unwrap();
    server.send(&grant.key().to_bytes()).unwrap();
    let key = RegionKey::from_bytes(&client.recv().unwrap().unwrap()).unwrap();
    assert_eq!((key.len(), key.is_writable()), (5, false));
    client.batch().get((&mine, 8..13), (&key, 0)).notify(1).submit().unwrap().wait().unwrap();
    let mut bytes = [0; 5];
    mine.read_at(8, &mut bytes).unwrap();
    assert_eq!(&bytes, b"there");
    // A message of the same bytes is none, also if it arrives in the same request.
    client.send(&1_u64.to_le_bytes()).unwrap();
    for expected in [Some(1), None] {
        let message = server.recv().unwrap().unwrap();
        assert_eq!((message.notification(), &message[..]), (expected, &1_u64.to_le_bytes()[..]));
        server.send_buf(message).unwrap();
        let echo = client.recv().unwrap().unwrap();
        assert_eq!((echo.notification(), &echo[..]), (None, &1_u64.to_le_bytes()[..]));
    }
}

#[test]
fn long_messages_arrive_in_a_region_and_short_ones_in_buffers() {
    const LENGTHS: [usize; 8] = [3, 100_000, 40_000, 0, 17_000, 200_000, 1_000, 300_000];
    const START: usize = 100;
    let (server, client) = pair(Transport::Rdma);
    let region = server.region(START + 300_000).unwrap();
    let message = |index: usize| vec![index as u8 + 1; LENGTHS[index]];
    std::thread::scope(|scope| {
        // Each message but the first one is sent while the server waits, or together with others before it does.
        scope.spawn(|| {
            for index in 0..LENGTHS.len() {
                client.send(&message(index)).unwrap();
                if index % 3 == 0 {
                    client.recv().unwrap().unwrap();
                }
            }
            client.shutdown().unwrap();
        });
        for (index, length) in LENGTHS.into_iter().enumerate() {
            let placed = if length == 200_000 {
                let error = server.recv_into_region(&region, START..START + length - 1).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
                assert!(error.to_string().contains("200000 bytes"), "{error}");
                server.recv_into_region(&region, START..START + length)
            } else {
                server.recv_into_region(&region, START..START + 300_000)
            };
            match placed.unwrap().unwrap() {
                Placed::Buffer(received) => {
                    assert!(length < 16 << 10, "{length} bytes were not READ into the region");
                    assert_eq!(received[..], message(index));
                }
                Placed::Region(count) => {
                    let mut bytes = vec![0; count];
                    region.read_at(START, &mut bytes).unwrap();
                    assert!(bytes == message(index), "message {index}, of {length} bytes");
                }
            }
            if index % 3 == 0 {
                server.send(b"go on").unwrap();
            }
        }
        assert!(server.recv_into_region(&region, 0..START).unwrap().is_none());
    });
    let mut before = [1; START];
    region.read_at(0, &mut before).unwrap();
    assert_eq!(before, [0; START]);
    region.release().unwrap();
}

/// The program may free its memory when the region was released. Until then, the device or the peer may use it.
#[test]
fn region_is_released_when_no_transfer_and_no_key_uses_it() {
    const LENGTH: usize = 4096;
    let (server, client) = pair(Transport::Rdma);
    let memory = Box::into_raw(vec![0_u8; LENGTH].into_boxed_slice());
    // SAFETY: the memory is freed after the region was released. Nothing refers to it before.
    let region = unsafe { server.region_at(memory.cast(), LENGTH) }.unwrap();
    let (mine, clone) = (client.region(LENGTH).unwrap(), region.clone());
    let region = region.release().unwrap_err().into_region().unwrap();
    drop(clone);

    let grant = Grant::writable(&server, &region, 0..LENGTH).unwrap();
    let key = grant.key();
    server.send(b"granted").unwrap();
    client.recv().unwrap().unwrap();
    let error = region.release().unwrap_err();
    assert!(error.to_string().contains("revoke its keys"), "{error}");
    mine.write_at(0, &[7; LENGTH]).unwrap();
    client.batch().put((&mine, 0..LENGTH), (&key, 0)).submit().unwrap().wait().unwrap();
    grant.revoke().unwrap();
    error.into_region().unwrap().release().unwrap();
    // SAFETY: the region was released.
    let memory = unsafe { Box::from_raw(memory) };
    assert_eq!(memory[..], [7; LENGTH]);

    // A transfer that was submitted uses the memory although its ticket was dropped.
    drop(client.batch().put((&mine, 0..LENGTH), (&key, 0)).submit().unwrap());
    let (mut left, begun) = (Some(mine), Instant::now());
    while let Some(region) = left {
        left = region.release().err().and_then(ReleaseError::into_region);
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
}

/// The peer may get the key by any means, and use it although this side sends nothing.
#[test]
fn a_key_is_valid_at_once_after_a_flush_and_without_one() {
    for is_flushed in [false, true] {
        let (server, client) = pair(Transport::Rdma);
        let (theirs, mine) = (server.region(64).unwrap(), client.region(64).unwrap());
        mine.write_at(0, &[5; 64]).unwrap();
        // The first key is usable at once, and so are those that reuse the window of a revoked one.
        for round in 0..20 {
            let grant = Grant::writable(&server, &theirs, 0..64).unwrap();
            if is_flushed {
                server.flush().unwrap();
            } else if round % 2 == 1 {
                client.send(b"not an answer").unwrap();
            }
            let put = client.batch().put((&mine, 0..64), (&grant.key(), 0)).submit().and_then(Ticket::wait);
            put.unwrap_or_else(|error| panic!("flushed: {is_flushed}, round {round}: {error}"));
            grant.revoke().unwrap();
        }
        let mut bytes = [0; 64];
        theirs.read_at(0, &mut bytes).unwrap();
        assert_eq!(bytes, [5; 64]);
    }
}

#[test]
fn a_flush_after_the_end_returns() {
    let (server, client) = pair(Transport::Rdma);
    let region = server.region(64).unwrap();
    let _grant = Grant::readable(&server, &region, 0..64).unwrap();
    drop(client);
    assert!(server.recv().unwrap().is_none());
    assert_ne!(
        server.flush_until(Some(Instant::now() + Duration::from_secs(60))).map_err(|error| error.kind()),
        Err(io::ErrorKind::TimedOut)
    );
}

#[test]
fn a_revoked_key_gives_no_access() {
    let (server, client) = pair(Transport::Rdma);
    if !has_windows() {
        return;
    }
    let (theirs, mine) = (server.region(64).unwrap(), client.region(64).unwrap());
    let grant = Grant::writable(&server, &theirs, 0..64).unwrap();
    let key = grant.key();
    server.send(b"granted").unwrap();
    client.recv().unwrap().unwrap();
    client.batch().put((&mine, 0..64), (&key, 0)).submit().unwrap().wait().unwrap();
    grant.revoke().unwrap();
    mine.write_at(0, &[1; 64]).unwrap();
    let late = client.batch().put((&mine, 0..64), (&key, 0)).submit().unwrap();
    let error = late.wait().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
    let mut bytes = [9; 64];
    theirs.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 64]);
}

#[test]
fn invalid_ranges_are_refused_before_posting() {
    let (server, client) = pair(Transport::Rdma);
    let (theirs, mine) = (server.region(64).unwrap(), client.region(64).unwrap());
    let writable = Grant::writable(&server, &theirs, 32..64).unwrap().key();
    let read_only = Grant::readable(&server, &theirs, 0..32).unwrap().key();
    let kinds = [
        client.batch().put((&mine, 0..8), (&read_only, 0)).submit().map(drop),
        client.batch().get((&mine, 0..8), (&read_only, 25)).submit().map(drop),
        client.batch().get((&mine, 60..65), (&read_only, 0)).submit().map(drop),
        client.batch().get((&mine, 0..8), (&read_only, u64::MAX)).submit().map(drop),
        Grant::readable(&server, &theirs, 8..8).map(drop),
        Grant::readable(&server, &mine, 0..8).map(drop),
        client.batch().put((&theirs, 0..8), (&writable, 0)).submit().map(drop),
        client.recv_into_region(&theirs, 0..8).map(drop),
        client.recv_into_region(&mine, 60..65).map(drop),
    ]
    .map(|result| result.unwrap_err().kind());
    assert_eq!(kinds, [io::ErrorKind::InvalidInput; 9]);
    assert!(client.send(b"the connection goes on").is_ok());
}

#[test]
fn the_65th_key_is_refused_until_another_is_revoked() {
    let (server, _client) = pair(Transport::Rdma);
    let region = server.region(64).unwrap();
    let mut grants: Vec<Grant<'_>> = (0..64).map(|_| Grant::readable(&server, &region, 0..1).unwrap()).collect();
    assert_eq!(Grant::readable(&server, &region, 0..1).unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
    grants.pop().unwrap().revoke().unwrap();
    assert!(Grant::readable(&server, &region, 0..1).is_ok());
}

#[test]
fn a_transfer_fails_when_the_peer_closes() {
    let (server, client) = pair(Transport::Rdma);
    let (theirs, mine) = (server.region(64).unwrap(), client.region(64).unwrap());
    let key = Grant::writable(&server, &theirs, 0..64).unwrap().key();
    drop(server);
    let error = client.batch().put((&mine, 0..64), (&key, 0)).submit().and_then(Ticket::wait).unwrap_err();
    assert_ne!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
}

#[test]
fn a_connection_over_tcp_has_no_regions() {
    let (server, _client) = pair(Transport::Tcp);
    assert_eq!(server.region(64).unwrap_err().kind(), io::ErrorKind::Unsupported);
}

#[test]
fn keys_travel_as_bytes() {
    let key = RegionKey { remote: Remote { address: 0x0102_0304, key: 7 }, length: 99, is_writable: true };
    assert_eq!(RegionKey::from_bytes(&key.to_bytes()), Some(key));
    assert_eq!(RegionKey::from_bytes(&key.to_bytes()[1..]), None);
    let mut bytes = key.to_bytes();
    bytes[20] = 2;
    assert_eq!(RegionKey::from_bytes(&bytes), None);
}
