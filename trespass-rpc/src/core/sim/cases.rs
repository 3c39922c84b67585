//! Hand-written cases; each tests one rule.

use super::*;

/// Creates one side that has received the peer's hello.
fn side(side: Side, limits: Limits) -> Connection<u32> {
    let hello = Hello {
        versions: (1, 1),
        calls: 0,
        bytes: 0,
        body: 0,
        window: 0,
        attachment: 0,
        nonce: 0,
        ends: (0, 0),
        methods: Vec::new(),
    };
    Connection::new(side, limits, &hello, 0)
}

/// Transfers all waiting frames. Returns how many requests and how many bytes of items arrived.
fn carry(from: &mut Connection<u32>, to: &mut Connection<u32>, now: u64) -> (Vec<u32>, Vec<usize>) {
    let (mut requests, mut items) = (Vec::new(), Vec::new());
    while let Some(bytes) = from.poll_transmit(4_000, now).map(<[u8]>::to_vec) {
        from.transmitted(bytes.len(), now);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (frame, after) = Frame::split(rest).unwrap();
            rest = after;
            match to.on_frame(&frame, now).unwrap() {
                Event::Request(request) => requests.push(request.id),
                Event::Item { id, body } => {
                    items.push(body.len());
                    to.consumed(id, body.len());
                }
                _ => {}
            }
        }
    }
    (requests, items)
}

fn both(limits: Limits) -> (Connection<u32>, Connection<u32>) {
    let (mut client, mut server) = (side(Side::Client, limits), side(Side::Server, limits));
    carry(&mut client, &mut server, 0);
    carry(&mut server, &mut client, 0);
    (client, server)
}

fn call(length: usize, deadline: Option<u64>, client: &mut Connection<u32>) -> u32 {
    let body = vec![7; length];
    let flags = Flags(Flags::STREAM_IN);
    client.start(&Outgoing { method: 1, flags, deadline, meta: &[], parts: &[&body] }, 0, 1).unwrap()
}

#[test]
fn items_of_any_length_get_credit_once_earlier_items_are_taken() {
    for window in [1, 33, 600, 1_001] {
        let (mut client, mut server) = both(Limits { window, ..LIMITS });
        let id = call(10, None, &mut client);
        assert_eq!(carry(&mut client, &mut server, 1).0, [id]);
        for length in [1, 1_200, 1, 250, 290, 1_200, 1_200, 0].repeat(10) {
            assert_eq!(client.item(id, &[&vec![2; length]]), Some(true), "{length} bytes, window {window}");
            assert_eq!(carry(&mut client, &mut server, 1).1, [length]);
            assert_eq!(server.item(id, &[&vec![2; length]]), Some(true), "{length} bytes, window {window}");
            assert_eq!(carry(&mut server, &mut client, 1).1, [length]);
            carry(&mut client, &mut server, 1);
        }
    }
}

#[test]
fn released_call_with_items_is_announced() {
    let (mut client, mut server) = both(Limits { calls: 1, ..LIMITS });
    let (first, second) = (call(1, None, &mut client), call(1, None, &mut client));
    carry(&mut client, &mut server, 1);
    assert_eq!((client.item(second, &[b"x"]), client.take_room()), (None, None));
    assert!(server.answer(first, Status::OK, false, &[]));
    carry(&mut server, &mut client, 1);
    assert_eq!((client.take_room(), client.take_room()), (Some(second), None));
    assert_eq!(client.item(second, &[b"x"]), Some(true));
}

#[test]
fn calls_after_a_cancelled_one_are_sent() {
    let (mut client, mut server) = both(LIMITS);
    let running = call(1_000, None, &mut client);
    let given_up = call(1_500, None, &mut client);
    call(1_500, Some(1_000), &mut client);
    let small = call(10, None, &mut client);
    assert_eq!(carry(&mut client, &mut server, 1).0, [running]);
    client.forget(given_up, || 1).unwrap();
    assert_eq!(carry(&mut client, &mut server, 1).0, [0_u32; 0]);
    client.on_time(1_000, |_, error| assert_eq!(error.status, Status::DEADLINE), &mut Vec::new()).unwrap();
    assert_eq!(carry(&mut client, &mut server, 1_000).0, [small]);
    // Cancelled calls do not count as waiting calls.
    for _ in 0..10 * LIMITS.waiting {
        let waits = call(1_500, None, &mut client);
        client.forget(waits, || 1_000).unwrap();
    }
    assert!(client.calls.waiting() == 0);
}

#[test]
fn peer_that_reads_nothing_gets_no_credit() {
    let (_, mut server) = both(LIMITS);
    let mut frames = Vec::new();
    for number in 0..1_000_u32 {
        frames.clear();
        write(&mut frames, &Header::new(Kind::Request, number << 1 | 1), &[], &[b"x"]);
        let (frame, _) = Frame::split(&frames).unwrap();
        match server.on_frame(&frame, 1) {
            Ok(Event::Request(request)) => assert!(server.answer(request.id, Status::OK, false, &[&[1; 1_000]])),
            Ok(other) => panic!("{other:?}"),
            Err(violation) => {
                assert_eq!((number, violation), (LIMITS.calls, Violation::Credit("calls")));
                break;
            }
        }
        assert!(number < LIMITS.calls, "more answers wait than the peer has credit for");
    }
    // A peer that reads its answers gets more credit.
    let (mut client, mut server) = both(LIMITS);
    for _ in 0..30 * LIMITS.calls {
        let id = call(1, None, &mut client);
        let requests = carry(&mut client, &mut server, 1).0;
        assert_eq!(requests, [id]);
        for id in requests {
            assert!(server.answer(id, Status::OK, false, &[&[1; 1_000]]));
        }
        carry(&mut server, &mut client, 1);
        client.forget(id, || 1).unwrap();
    }
}

#[test]
fn answer_of_a_server_that_shuts_down_states_that_nothing_ran() {
    let (mut client, mut server) = both(LIMITS);
    server.go_away("");
    let id = call(1, None, &mut client);
    carry(&mut client, &mut server, 1);
    let bytes = server.poll_transmit(4_000, 1).unwrap();
    // Skips `GoAway` and `Ping`.
    let (_, rest) = Frame::split(bytes).unwrap();
    let (_, rest) = Frame::split(rest).unwrap();
    let (frame, _) = Frame::split(rest).unwrap();
    let event = client.on_frame(&frame, 1).unwrap();
    let Event::Answer { id: answered, status, is_refused, .. } = event else { panic!("{event:?}") };
    assert_eq!((answered, status, is_refused), (id, Status::UNAVAILABLE, true));
}

#[test]
fn items_wait_while_many_bytes_are_unsent() {
    let limits = Limits { window: u32::MAX, ..LIMITS };
    let (mut client, mut server) = both(limits);
    let id = call(1, None, &mut client);
    carry(&mut client, &mut server, 1);
    let item = vec![2; 1_500];
    while server.item(id, &[&item]).unwrap() {
        assert!(server.backlog() < BACKLOG + 2_000);
    }
    assert_eq!(server.take_room(), None);
    carry(&mut server, &mut client, 1);
    assert_eq!((server.take_room(), server.item(id, &[&item])), (Some(id), Some(true)));
}

#[test]
fn peer_is_pinged_before_it_counts_as_silent() {
    let (mut client, mut server) = both(LIMITS);
    let keepalive = micros(LIMITS.keepalive);
    let late = 10 * keepalive;
    client.on_time(late, |_, _| {}, &mut Vec::new()).unwrap();
    carry(&mut client, &mut server, late);
    carry(&mut server, &mut client, late);
    assert_eq!(client.next_timeout(), late + keepalive);
    client.on_time(2 * late, |_, _| {}, &mut Vec::new()).unwrap();
    carry(&mut client, &mut server, 2 * late);
    assert_eq!(client.next_timeout(), 2 * late + 2 * keepalive);
    assert!(client.on_time(client.next_timeout(), |_, _| {}, &mut Vec::new()).is_err());
}

#[test]
fn call_number_of_a_peer_reserves_no_memory() {
    let (_, mut server) = both(LIMITS);
    let mut frames = Vec::new();
    for index in [0, 1, 32_767, 16_000] {
        frames.clear();
        write(&mut frames, &Header::new(Kind::Request, index << 1 | 1 << 16 | 1), &[], &[b"x"]);
        let (frame, _) = Frame::split(&frames).unwrap();
        assert!(matches!(server.on_frame(&frame, 1), Ok(Event::Request(_))));
    }
    assert!(server.serving.capacity() < 64, "{}", server.serving.capacity());
}

#[test]
fn peer_without_a_common_version_is_refused() {
    for (versions, is_well) in [((1, 1), true), ((1, 9), true), ((0, 1), true), ((2, 3), false), ((0, 0), false)] {
        let mut client = side(Side::Client, LIMITS);
        let hello = Hello {
            versions,
            calls: 1,
            bytes: 1,
            body: 1,
            window: 1,
            attachment: 1,
            nonce: 0,
            ends: (0, 0),
            methods: Vec::new(),
        };
        let mut frames = Vec::new();
        write(&mut frames, &Header::new(Kind::Hello, 0), &[], &[&hello.to_bytes()]);
        let (frame, _) = Frame::split(&frames).unwrap();
        match client.on_frame(&frame, 1) {
            Ok(Event::Ready) => assert!(is_well),
            Err(violation) => assert_eq!((violation, is_well), (Violation::Versions(versions.0, versions.1), false)),
            Ok(other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn hello_with_other_queue_pair_numbers_is_refused() {
    // For each case: the queue pair numbers (own, peer's) that this side has, then the numbers (own, peer's) that its
    // peer has; 0 means unknown.
    let cases = [
        ((5, 6), (6, 5), true),
        ((5, 0), (6, 5), true),
        ((5, 6), (6, 0), true),
        ((5, 6), (6, 7), false),
        ((5, 6), (7, 5), false),
        ((0, 0), (6, 7), true),
    ];
    for (ours, theirs, is_well) in cases {
        let of = |ends| Hello {
            versions: (1, 1),
            calls: 1,
            bytes: 1,
            body: 1,
            window: 1,
            attachment: 1,
            nonce: 0,
            ends,
            methods: Vec::new(),
        };
        let mut client = Connection::<()>::new(Side::Client, LIMITS, &of(ours), 0);
        let mut frames = Vec::new();
        write(&mut frames, &Header::new(Kind::Hello, 0), &[], &[&of(theirs).to_bytes()]);
        let (frame, _) = Frame::split(&frames).unwrap();
        match client.on_frame(&frame, 1) {
            Ok(_) => assert!(is_well, "{ours:?} {theirs:?}"),
            Err(violation) => assert_eq!((violation.status(), is_well), (Status::UNAUTHENTICATED, false)),
        }
    }
}

#[test]
fn hello_and_bulk_frames_have_a_limit() {
    let (_, mut server) = both(LIMITS);
    let mut frames = Vec::new();
    write(&mut frames, &Header::new(Kind::Bulk, 1), &[], &[&vec![0; FIXED_LIMIT + 1]]);
    let (frame, _) = Frame::split(&frames).unwrap();
    let violation = server.on_frame(&frame, 1).unwrap_err();
    assert_eq!(violation, Violation::Body(FIXED_LIMIT + 1, FIXED_LIMIT));
}

#[test]
fn side_that_leaves_has_left_when_its_ping_is_answered() {
    let (mut client, mut server) = both(LIMITS);
    server.go_away("");
    let id = call(1, None, &mut client);
    carry(&mut client, &mut server, 1);
    // The call was in flight: it is refused, and the peer has not acknowledged anything yet.
    assert!(!server.has_left());
    carry(&mut server, &mut client, 1);
    assert!(client.call(id).is_some() && !server.has_left());
    carry(&mut client, &mut server, 1);
    assert!(server.has_left() && server.is_drained());
}
