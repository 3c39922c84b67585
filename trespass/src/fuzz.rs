//! Entry points for the fuzz targets in `fuzz/`, which call them with arbitrary bytes.

use std::sync::OnceLock;

use crate::memory::Pool;
use crate::proto::{Agreement, FLOOR, Hello, Protocol, Received, Refusal, Remote, Request, Settings, Stock};

const SEGMENT: usize = 512;

/// Runs a connection whose peer sends the input. Each step of the input consists of an operation, a length and that
/// many bytes. Returns true if the peer violated no rule.
pub fn frames(input: &[u8]) -> bool {
    static POOL: OnceLock<Pool> = OnceLock::new();
    let pool = POOL.get_or_init(|| Pool::on_heap(SEGMENT, 32 << 20));
    let mut stock = Stock::new(pool.clone());
    if stock.add_receives(40) != 40 || !stock.ledger.open() {
        return false;
    }
    let agreement =
        Agreement { version: 2, segment: SEGMENT as u32, credits: FLOOR, reads: 2, rendezvous: 0, message: 1 << 20 };
    let settings = Settings { message: 8_000, send_high_water: 4_000, ..Settings::default() };
    let mut connection = Protocol::new(settings, agreement, FLOOR, 0);
    let (mut rest, mut is_well) = (input, true);
    while let [operation, length, bytes @ ..] = rest {
        let (bytes, more) = bytes.split_at(bytes.len().min(usize::from(*length)));
        rest = more;
        is_well &= step(*operation, bytes, &mut connection, &mut stock);
        // Each receive is counted exactly once, in the queue or inbox that contains it now.
        assert_eq!(stock.receives.len() + usize::from(connection.held()), stock.ledger.total as usize);
        assert!(stock.ledger.leased <= stock.ledger.total);
    }
    connection.whole().forget(&mut stock);
    assert_eq!((stock.ledger.leased, stock.receives.len()), (0, stock.ledger.total as usize));
    is_well
}

fn step(operation: u8, bytes: &[u8], connection: &mut Protocol, stock: &mut Stock) -> bool {
    let mut is_well = true;
    match operation % 8 {
        0..4 => {
            // As in a backend, a SEND uses a posted receive. If none is left, the peer sent without a credit.
            let Some(mut receive) = stock.receives.pop() else { return true };
            receive[..bytes.len()].copy_from_slice(bytes);
            let Err(receive) = connection.received_alone(receive, bytes.len(), false) else { return true };
            if let Err(violation) = connection.whole().received(receive, bytes.len(), stock) {
                connection.whole().fail(violation);
                is_well = false;
            }
        }
        4 => _ = connection.read_to(&mut &mut vec![0; bytes.len() * 10][..], stock),
        5 => while let Ok(Received::Message(_)) = connection.try_recv(stock) {},
        6 => _ = connection.whole().try_send(&bytes.repeat(8), stock, Err),
        _ => match bytes.first() {
            Some(0) => _ = connection.whole().shutdown(stock),
            Some(1) => connection.whole().close(1, "", 0, stock),
            _ => connection.whole().tick(u64::from(operation) << 6, stock),
        },
    }
    let mut announced = 0;
    let announce = |_| {
        announced += 1;
        Ok(Remote { address: announced, key: 1 })
    };
    connection.whole().transmit(stock, announce);
    for request in std::mem::take(&mut connection.whole().requests) {
        match request {
            Request::Send(send) => {
                stock.give(send);
                connection.sent(1);
            }
            Request::Read { token, into, .. } => connection.whole().read_done(token, into, true),
            Request::Land { token, length, .. } => match stock.pool.alloc(length as usize) {
                Some(message) => connection.whole().landed(token, message, stock),
                None => return is_well,
            },
            Request::Write { from, .. } => connection.whole().wrote(from.len()),
            Request::Conceal(_) | Request::Revoke(_) | Request::Transfer(_) | Request::Bind => {}
            Request::Probe => connection.whole().probed(),
        }
    }
    is_well
}

/// Parses a hello or a refusal from a peer. Returns whether it is a hello whose versions, features and limits are
/// acceptable.
pub fn handshake(input: &[u8]) -> bool {
    let own = Hello { segment: 4096, credits: FLOOR, ..Hello::new(1) };
    let mut agrees = false;
    if let Ok(hello) = Hello::parse(input) {
        assert_eq!(Hello::parse(&hello.emit()), Ok(hello));
        if let Ok(agreement) = own.agree(&hello) {
            assert!(agreement.segment <= 4096 && agreement.credits >= FLOOR);
            agrees = true;
        }
    }
    if let Some(refusal) = Refusal::parse(input) {
        assert!(Refusal::parse(&refusal.emit()).is_some());
    }
    agrees
}

#[cfg(test)]
mod tests;
