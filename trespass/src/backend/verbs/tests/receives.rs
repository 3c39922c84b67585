//! The receives that links which end amid messages leave.

use std::thread;

use super::*;

/// Several packets, so that links end amid a message.
const LENGTH: usize = 16 << 10;

/// Posts receives until the shared queue has all of them.
fn refill(side: &mut Side) {
    side.log.received.clear();
    side.log.returned.clear();
    let mut buffers: Vec<Buf> =
        (side.verbs.links.receives.len()..RECEIVES as usize).map(|_| side.verbs.pool().segment().unwrap()).collect();
    side.verbs.post_receives(&mut buffers);
    assert!(buffers.is_empty());
}

fn wait(side: &mut Side, mut done: impl FnMut(&mut Side) -> bool) {
    let begun = Instant::now();
    while !done(side) {
        side.poll();
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", side.log);
    }
}

/// The link with this number, of which the last one is `LINK`.
fn link(number: usize, links: usize) -> LinkId {
    LinkId { generation: LINK.generation + (links - number) as u32, ..LINK }
}

/// Connects a client, and lets it send messages until the link ends: by the server, by the client, or with the client.
fn flood(mut client: Side, address: SocketAddr, number: usize, link: LinkId) -> Side {
    client.verbs.connect(link, address, b"hello").unwrap();
    wait(&mut client, |client| !client.log.established.is_empty() || !client.log.ended.is_empty());
    let mut turns = 0;
    wait(&mut client, |client| {
        let mut requests: VecDeque<Request> = [Request::Send(client.buf(&[7; LENGTH]))].into();
        client.verbs.post(link, &mut requests, &mut client.spare);
        turns += 1;
        match number % 4 {
            1 if turns == 10 + number % 20 => client.verbs.disconnect(link),
            2 if turns == 10 + number % 20 => return true,
            _ => {}
        }
        client.spare.clear();
        !client.log.ended.is_empty()
    });
    if number % 4 == 2 {
        return Side::with_segment(LENGTH as u32);
    }
    client.log = Log::default();
    client
}

/// A queue pair that ends amid a message may have taken a receive of the shared queue.
#[test]
fn links_that_end_amid_messages_leave_all_receives() {
    let mut server = Side::with_segment(LENGTH as u32);
    let any = server.address();
    let address = server.verbs.listen(ListenerId(1), any, 8).unwrap();
    let links = std::env::var("TRESPASS_ENDS").map_or(50, |count| count.parse().unwrap());
    let client = thread::spawn(move || {
        let mut client = (0..links).fold(Side::with_segment(LENGTH as u32), |client, number| {
            flood(client, address, number, link(number, links))
        });
        client.verbs.connect(LINK, address, b"hello").unwrap();
        wait(&mut client, |client| !client.log.established.is_empty());
        for _ in 0..RECEIVES {
            let message = client.buf(b"one of the receives");
            client.post([Request::Send(message)]);
        }
        wait(&mut client, |client| !client.log.ended.is_empty());
    });
    for number in 0..=links {
        wait(&mut server, |server| !server.log.incoming.is_empty());
        let (incoming, _) = server.log.incoming.remove(0);
        server.verbs.accept(incoming, link(number, links), b"hello");
        if number % 4 == 3 && number != links {
            // The server does not notice that the client is connected, and gives it up while messages arrive.
            (0..number * 7 % 500).for_each(|_| thread::yield_now());
            server.verbs.disconnect(link(number, links));
        }
        let mut arrived = 0;
        wait(&mut server, |server| {
            arrived += server.log.received.len();
            if number != links {
                refill(server);
                if number % 4 == 0 && arrived > number % 5 {
                    server.verbs.disconnect(link(number, links));
                }
            } else if server.log.received.len() == RECEIVES as usize {
                return true;
            }
            !server.log.ended.is_empty()
        });
        if number == links {
            assert_eq!(server.log.received.len(), RECEIVES as usize, "{links} links have taken receives");
        }
        server.log.ended.clear();
    }
    drop(server);
    client.join().unwrap();
}
