//! What the fuzz targets call, with bytes of the fuzzer's choice: see `fuzz/`.

use std::sync::OnceLock;

use crate::memory::{Buf, Pool};
use crate::proto::{Agreement, Connection, FLOOR, Hello, Port, Received, Refusal, Remote, Request, Settings, Stock};

const SEGMENT: usize = 512;

/// Ports nothing.
struct Nowhere;

impl Port for Nowhere {
    fn expose(&mut self, message: Buf) -> Result<Remote, Buf> {
        Err(message)
    }
}

/// A connection whose peer sends what the input contains: each step is an operation, a length and its bytes.
pub fn frames(input: &[u8]) {
    static POOL: OnceLock<Pool> = OnceLock::new();
    let pool = POOL.get_or_init(|| Pool::on_heap(SEGMENT, 32 << 20));
    let mut stock = Stock::new(pool.clone());
    if stock.add_receives(40) != 40 || !stock.ledger.open() {
        return;
    }
    let agreement =
        Agreement { version: 1, segment: SEGMENT as u32, credits: FLOOR, reads: 2, rendezvous: 0, message: 1 << 20 };
    let settings = Settings { message: 8_000, send_high_water: 4_000, ..Settings::default() };
    let mut connection = Connection::new(settings, agreement, FLOOR, 0);
    let mut rest = input;
    while let [operation, length, bytes @ ..] = rest {
        let (bytes, more) = bytes.split_at(bytes.len().min(usize::from(*length)));
        rest = more;
        step(*operation, bytes, &mut connection, &mut stock);
        // Each SEND has one receive, wherever it is now.
        assert_eq!(stock.receives.len() + usize::from(connection.held()), stock.ledger.total as usize);
        assert!(stock.ledger.leased <= stock.ledger.total);
    }
    connection.forget(&mut stock);
    assert_eq!((stock.ledger.leased, stock.receives.len()), (0, stock.ledger.total as usize));
}

fn step(operation: u8, bytes: &[u8], connection: &mut Connection, stock: &mut Stock) {
    match operation % 8 {
        0..4 => {
            // What a backend does: a SEND takes a posted receive; none is left to a peer without a credit.
            let Some(mut receive) = stock.receives.pop() else { return };
            receive[..bytes.len()].copy_from_slice(bytes);
            receive.truncate(bytes.len());
            if let Err(violation) = connection.received(receive, stock) {
                connection.fail(violation);
            }
        }
        4 => _ = connection.read(&mut vec![0; bytes.len() * 10], stock),
        5 => while let Ok(Received::Message(_)) = connection.try_recv(stock) {},
        6 => _ = connection.try_send(bytes, stock, &mut Nowhere),
        _ => match bytes.first() {
            Some(0) => _ = connection.shutdown(stock),
            Some(1) => connection.close(1, "", 0, stock),
            _ => connection.tick(u64::from(operation) << 6, stock),
        },
    }
    connection.transmit(stock);
    for request in std::mem::take(&mut connection.requests) {
        match request {
            Request::Send(send) => {
                stock.give(send);
                connection.sent(1);
            }
            Request::Read { token, into, .. } => connection.read_done(token, into, true),
            Request::Conceal(_) | Request::Transfer(_) => {}
            Request::Probe => connection.probed(),
        }
    }
}

/// A hello or a refusal from a peer.
pub fn handshake(input: &[u8]) {
    let own = Hello { segment: 4096, credits: FLOOR, ..Hello::new(1) };
    if let Ok(hello) = Hello::parse(input) {
        assert_eq!(Hello::parse(&hello.emit()), Ok(hello));
        if let Ok(agreement) = own.agree(&hello) {
            assert!(agreement.segment <= 4096 && agreement.credits >= FLOOR);
        }
    }
    if let Some(refusal) = Refusal::parse(input) {
        assert!(Refusal::parse(&refusal.emit()).is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Inputs that look like frames, from a seed.
    fn input(seed: u64) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = |end: u64| {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % end
        };
        let mut bytes = Vec::new();
        for _ in 0..30 {
            let operation = next(8) as u8;
            let mut frames = Vec::new();
            for _ in 0..=next(2) {
                let payload = next(30) as usize;
                let length = if next(10) == 0 { next(200) } else { payload as u64 };
                frames.extend([next(12) as u8, next(2) as u8, next(20) as u8, 0, length as u8, 0, 0, 0]);
                frames.extend([next(4) as u8 * 20, next(2) as u8, 0, 0, next(20) as u8, 0, 0, 0]);
                frames.extend((0..payload).map(|_| 7));
            }
            bytes.extend([operation, frames.len() as u8]);
            bytes.extend(frames);
        }
        bytes
    }

    #[test]
    fn malformed_frames_end_the_connection_and_keep_the_receives() {
        (0..20_000).for_each(|seed| frames(&input(seed)));
    }

    #[test]
    fn malformed_handshakes_are_refused() {
        handshake(b"trsp");
        for seed in 0..2_000 {
            let mut bytes = Hello::new(seed).emit().to_vec();
            bytes[4..].iter_mut().zip(input(seed)).for_each(|(byte, other)| *byte ^= other);
            handshake(&bytes);
        }
    }
}
