//! Entry points for the fuzz target in `fuzz/`, which calls them with arbitrary bytes.

use crate::core::{Connection, Event, Limits, Side};
use crate::error::Status;
use crate::wire::{Bulk, Frame, Header, Hello, Kind, write};

/// Runs a connection whose peer sends the input as messages of arbitrary frames.
pub fn rpc_frames(input: &[u8]) {
    let hello = Hello {
        versions: (1, 1),
        calls: 4,
        bytes: 4_000,
        body: 1_000,
        window: 500,
        attachment: 9,
        nonce: 0,
        ends: (0, 0),
        methods: Vec::new(),
    };
    let limits = Limits { calls: 4, bytes: 4_000, body: 1_000, window: 500, ..Limits::default() };
    let mut connection = Connection::<()>::new(Side::Server, limits, &hello, 0);
    let mut first = Vec::new();
    write(&mut first, &Header::new(Kind::Hello, 0), &[], &[&hello.to_bytes()]);
    let Ok((frame, _)) = Frame::split(&first) else { return };
    assert!(matches!(connection.on_frame(&frame, 0), Ok(Event::Ready)));
    let (mut rest, mut running, mut now) = (input, Vec::new(), 0);
    while !rest.is_empty() {
        let Ok((frame, after)) = Frame::split(rest) else { return };
        rest = after;
        now += 100;
        match connection.on_frame(&frame, now) {
            Err(_) => return,
            Ok(Event::Request(request)) => {
                // The peer chooses the descriptors and lengths.
                if let Ok((bulks, arguments, inline)) = Bulk::split(request.body, request.flags.bulks()) {
                    assert!(bulks.count() <= 15 && arguments.len() + inline.len() <= 1_000);
                }
                running.push(request.id);
            }
            Ok(Event::Cancel { id }) => {
                running.retain(|other| *other != id);
                assert!(connection.answer(id, Status::CANCELLED, false, &[]));
            }
            Ok(_) => {}
        }
        assert!(running.len() <= 4);
        if now % 300 == 0
            && let Some(id) = running.pop()
        {
            assert!(connection.answer(id, Status::OK, false, &[b"x"]));
        }
        while let Some(length) = connection.poll_transmit(1_000, now).map(<[u8]>::len) {
            connection.transmitted(length, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::wire::{Flags, Header, Kind, write};

    /// Generates frames of random kinds and fields, and changes random bytes of them.
    #[test]
    fn random_frames_pass() {
        const KINDS: [Kind; 6] =
            [Kind::Request, Kind::Request, Kind::Cancel, Kind::Credit, Kind::StreamData, Kind::Bulk];
        let mut state = 1_u64;
        let mut random = |end: u64| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 33) % end
        };
        for _ in 0..if cfg!(miri) { 20 } else { 20_000 } {
            let mut input = Vec::new();
            for _ in 0..random(20) {
                let kind = KINDS[random(6) as usize];
                let call = (random(12) as u32) << random(4) | 1;
                let flags = Flags::new(0, random(3) as usize);
                let header =
                    Header { flags, method: random(1 << 20), budget: random(3) as u32, ..Header::new(kind, call) };
                let body: Vec<u8> = (0..random(120)).map(|_| random(8) as u8).collect();
                write(&mut input, &header, &[], &[&body]);
            }
            if random(3) == 0 && !input.is_empty() {
                let at = random(input.len() as u64) as usize;
                input[at] ^= 1 << random(8);
            }
            super::rpc_frames(&input);
        }
    }
}
