//! What the two sides tell each other beside the addresses of their queue pairs: hexadecimal digits, closed by a zero byte.
//!
//! ```text
//! client                                    server
//!   how many queue pairs          ───────►
//!   their addresses               ───────►    brings as many up
//!                                 ◄───────    their addresses
//!   brings its own up             ◄───────    where the counter is
//!   "done\0"                      ───────►
//!   changes the counter
//!   how much it has added         ───────►    looks at the counter
//! ```

use anyhow::{Context, Result, bail};
use sideway::ibverbs::memory_region::RemoteKey;
use sideway_examples::exchange::Peer;

/// What one server serves.
pub(crate) const MOST_QUEUE_PAIRS: u16 = 256;

/// Where the counter is: what requests of the peer name it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counter {
    /// In the memory of its holder; a multiple of 8.
    pub(crate) addr: u64,
    pub(crate) rkey: RemoteKey,
}

pub(crate) fn send_count(peer: &mut Peer, count: u16) -> Result<()> {
    peer.send(&encode(&format!("{count:04x}")))
}

pub(crate) fn receive_count(peer: &mut Peer) -> Result<u16> {
    let [count] = receive::<5, 1>(peer, "how many queue pairs it has")?;
    match u16::try_from(count) {
        Ok(count @ 1..=MOST_QUEUE_PAIRS) => Ok(count),
        _ => bail!("{} has {count} queue pairs, and the counter is for 1 to {MOST_QUEUE_PAIRS}", peer.name()),
    }
}

pub(crate) fn send_counter(peer: &mut Peer, counter: Counter) -> Result<()> {
    peer.send(&encode(&format!("{:016x}:{:08x}", counter.addr, counter.rkey.raw())))
}

pub(crate) fn receive_counter(peer: &mut Peer) -> Result<Counter> {
    let [addr, rkey] = receive::<26, 2>(peer, "where the counter is")?;
    let rkey = RemoteKey::from_raw(u32::try_from(rkey).context("the key of the counter has 32 bits")?);
    Ok(Counter { addr, rkey })
}

pub(crate) fn send_sum(peer: &mut Peer, sum: u64) -> Result<()> {
    peer.send(&encode(&format!("{sum:016x}")))
}

pub(crate) fn receive_sum(peer: &mut Peer) -> Result<u64> {
    let [sum] = receive::<17, 1>(peer, "how much it has added")?;
    Ok(sum)
}

fn encode(text: &str) -> Vec<u8> {
    [text.as_bytes(), b"\0"].concat()
}

/// A message of `LEN` bytes with `N` numbers.
fn receive<const LEN: usize, const N: usize>(peer: &mut Peer, what: &str) -> Result<[u64; N]> {
    let mut message = [0; LEN];
    peer.receive(&mut message, what)?;
    decode(&message).with_context(|| {
        let text = message.escape_ascii();
        format!("{} said `{text}` and not {what}: is the other program an rdma_atomic?", peer.name())
    })
}

fn decode<const N: usize>(message: &[u8]) -> Option<[u64; N]> {
    let text = std::str::from_utf8(message).ok()?.strip_suffix('\0')?;
    let number = |field: &str| {
        // `from_str_radix` would take a sign as well.
        let is_hex = !field.is_empty() && field.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hex.then(|| u64::from_str_radix(field, 16).ok()).flatten()
    };
    let numbers: Option<Vec<u64>> = text.split(':').map(number).collect();
    numbers?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;
    use std::time::Duration;

    use sideway_examples::Timeout;

    use super::*;

    const LIMIT: Timeout = Timeout(Some(Duration::from_secs(10)));

    /// The two ends of a connection.
    fn peers() -> (Peer, Peer) {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = thread::spawn(move || Peer::accept(port, LIMIT).unwrap());
        let client = loop {
            match Peer::connect("127.0.0.1", port, LIMIT) {
                Ok(client) => break client,
                Err(_) => thread::yield_now(),
            }
        };
        (client, server.join().unwrap())
    }

    #[test]
    fn what_is_said_is_heard() {
        let (mut client, mut server) = peers();
        let counter = Counter { addr: 0x7f12_3456_7000, rkey: RemoteKey::from_raw(0xfedc_ba98) };
        send_count(&mut client, 256).unwrap();
        send_sum(&mut client, u64::MAX).unwrap();
        send_counter(&mut server, counter).unwrap();
        assert_eq!(receive_count(&mut server).unwrap(), 256);
        assert_eq!(receive_sum(&mut server).unwrap(), u64::MAX);
        assert_eq!(receive_counter(&mut client).unwrap(), counter);
    }

    #[test]
    fn other_programs_are_told_apart() {
        let (mut client, mut server) = peers();
        client.send(b"0000:").unwrap();
        let error = receive_count(&mut server).unwrap_err().to_string();
        assert!(error.contains("said `0000:` and not how many queue pairs it has"), "{error}");
        send_count(&mut client, 257).unwrap();
        let error = receive_count(&mut server).unwrap_err().to_string();
        assert!(error.contains("257 queue pairs") && error.contains("1 to 256"), "{error}");
        send_count(&mut client, 0).unwrap();
        assert!(receive_count(&mut server).is_err());
    }

    #[test]
    fn numbers_have_digits_alone() {
        assert_eq!(decode(b"00ff\0"), Some([255]));
        assert_eq!(decode(b"1:2\0"), Some([1, 2]));
        for wrong in [&b"00ff"[..], b"+0ff\0", b":\0", b"\0", b"1:2:3\0", b"12345678123456781\0", b"\xff\0"] {
            assert_eq!(decode::<2>(wrong), None, "{}", wrong.escape_ascii());
        }
    }
}
