//! What a small message costs the protocol, in instructions: run under callgrind by `own_instructions_of_a_small_message`.

use std::process::Command;

use crate::memory::{Buf, Pool};
use crate::proto::{Agreement, Connection, Expose, FLOOR, Remote, Request, Settings, Stock};

/// Rounds of the two runs; their difference is what the rounds cost.
const ROUNDS: [u64; 2] = [1_000, 3_000];
const VARIABLE: &str = "TRESPASS_COST_ROUNDS";
/// Instructions of a 64 B message, both ends, with the copies of the simulated device. The aim is 150 without them.
const LIMIT: u64 = 700;

struct Nowhere;

impl Expose for Nowhere {
    fn expose(&mut self, message: Buf) -> Result<Remote, Buf> {
        Err(message)
    }
}

struct End {
    connection: Connection,
    stock: Stock,
}

fn end() -> End {
    let mut stock = Stock::new(Pool::on_heap(4112, 8 << 20));
    assert_eq!(stock.add_receives(128), 128);
    assert!(stock.ledger.open());
    let agreement = Agreement { version: 1, segment: 4112, credits: FLOOR, reads: 0, rendezvous: 0, message: 1 << 20 };
    End { connection: Connection::new(Settings::default(), agreement, FLOOR, 0), stock }
}

/// One message from one end to the other, read into the program's memory.
#[inline(never)]
fn message(from: &mut End, to: &mut End, bytes: &[u8; 64], read: &mut [u8; 64]) {
    assert!(from.connection.try_send(bytes, &mut from.stock, &mut Nowhere).is_ok());
    from.connection.transmit(&mut from.stock);
    while let Some(Request::Send(send)) = from.connection.requests.pop_front() {
        let mut receive = to.stock.receives.pop().expect("a receive");
        receive[..send.len()].copy_from_slice(&send);
        receive.truncate(send.len());
        assert!(to.connection.received(receive, &mut to.stock).is_ok());
        from.stock.give(send);
        from.connection.sent(1);
    }
    assert!(matches!(to.connection.read(read, &mut to.stock), Ok(Some(64))));
}

#[test]
fn rounds() {
    let Some(rounds) = std::env::var(VARIABLE).ok().and_then(|text| text.parse::<u64>().ok()) else { return };
    let (mut left, mut right) = (end(), end());
    let (bytes, mut read) = ([7; 64], [0; 64]);
    for _ in 0..rounds {
        message(&mut left, &mut right, &bytes, &mut read);
        message(&mut right, &mut left, &bytes, &mut read);
    }
    assert_eq!(read, bytes);
}

/// Instructions of N rounds; `None` without valgrind.
fn count(rounds: u64) -> Option<u64> {
    let program = std::env::current_exe().ok()?;
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program);
    command.args(["--exact", "proto::cost::rounds", "--test-threads=1"]).env(VARIABLE, rounds.to_string());
    let output = command.output().ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = text.lines().find_map(|line| line.split_once("Collected : "))?;
    line.1.trim().parse().ok()
}

#[test]
fn own_instructions_of_a_small_message_are_few() {
    // Only optimised code is worth counting.
    if cfg!(debug_assertions) {
        return;
    }
    let (Some(few), Some(many)) = (count(ROUNDS[0]), count(ROUNDS[1])) else { return };
    let each = many.saturating_sub(few) / (2 * (ROUNDS[1] - ROUNDS[0]));
    assert!(each <= LIMIT, "{each} instructions");
    assert!(each > 50, "{each} instructions: nothing was counted");
}
