//! Buffers to which the peer writes.

use sideway_tests::requirements::may_not_run;

use super::*;

/// Announces a buffer of the first side to the second one. Returns `None` if the device does not support this.
fn announced(sides: &mut [Side; 2], length: usize) -> Option<Remote> {
    let buffer = sides[0].verbs.pool().alloc(length).unwrap();
    let announced = sides[0].verbs.announce(LINK, buffer);
    assert_eq!(announced.is_ok(), sides[0].verbs.device.announces);
    let Ok(remote) = announced else {
        may_not_run("a key of this device cannot be limited to a buffer");
        return None;
    };
    let announce = sides[0].buf(b"announce");
    sides[0].post([Request::Send(announce)]);
    until(sides, |sides| !sides[1].log.received.is_empty());
    Some(remote)
}

/// Lets the second side write a message, and waits until its report has arrived.
fn write(sides: &mut [Side; 2], bytes: &[u8], to: Remote) {
    let [message, report] = [bytes, b"written"].map(|bytes| sides[1].buf(bytes));
    sides[1].post([Request::Write { from: message, to }, Request::Send(report)]);
    until(sides, |sides| !sides[0].log.received.is_empty() || !sides[1].log.ended.is_empty());
}

#[test]
fn an_announced_buffer_is_writable_until_its_message_has_landed() {
    let mut sides = connected();
    let bytes: Vec<u8> = (0..100_000_u32).map(|n| n as u8).collect();
    let Some(remote) = announced(&mut sides, 1 << 17) else { return };
    write(&mut sides, &bytes, remote);
    sides[0].post([Request::Land { token: 9, remote, length: bytes.len() as u32 }]);
    until(&mut sides, |sides| !sides[0].log.landed.is_empty());
    assert_eq!(sides[0].log.landed.remove(0), (9, bytes));

    write(&mut sides, b"too late", remote);
    until(&mut sides, |sides| sides.iter().all(|side| !side.log.ended.is_empty()));
    let Ended::Failed(error) = &sides[1].log.ended[0].1 else { panic!("{:?}", sides[1].log) };
    assert!(error.to_string().contains("remote access error"), "{error}");
    assert_eq!(sides.each_mut().map(Side::missing), [0, 0]);
}

#[test]
fn an_announced_buffer_cannot_be_read_or_overrun() {
    for reads in [true, false] {
        let mut sides = connected();
        let Some(remote) = announced(&mut sides, 1 << 17) else { return };
        let buffer = sides[1].verbs.pool().alloc(if reads { 1 } else { (1 << 17) + 1 }).unwrap();
        sides[1].post([match reads {
            true => Request::Read { token: 1, into: buffer, from: remote },
            false => Request::Write { from: buffer, to: remote },
        }]);
        until(&mut sides, |sides| sides.iter().all(|side| !side.log.ended.is_empty()));
        let Ended::Failed(error) = &sides[1].log.ended[0].1 else { panic!("{:?}", sides[1].log) };
        assert!(error.to_string().contains("remote access error"), "{error}");
        assert_eq!(sides.each_mut().map(Side::missing), [0, 0]);
    }
}

/// The worker learns of the message in the turn in which the link is found to be over, and its request follows.
#[test]
fn a_message_that_was_written_before_the_end_lands() {
    let mut sides = connected();
    let Some(remote) = announced(&mut sides, 1 << 17) else { return };
    let [message, report] = [&b"the last message"[..], b"written"].map(|bytes| sides[1].buf(bytes));
    sides[1].post([Request::Write { from: message, to: remote }, Request::Send(report), Request::Probe]);
    let begun = Instant::now();
    while sides[1].log.probed == 0 {
        sides[1].poll();
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", sides[1].log);
    }
    sides[1].verbs.disconnect(LINK);
    let [Side { verbs, log, spare }, peer] = &mut sides;
    while verbs.manage(log, spare) == 0 {
        peer.poll();
        assert!(begun.elapsed() < Duration::from_secs(60), "{log:?}");
    }
    while log.received.is_empty() {
        verbs.arm().unwrap();
        verbs.poll(64, log, spare);
        assert!(begun.elapsed() < Duration::from_secs(60), "{log:?}");
    }
    sides[0].post([Request::Land { token: 4, remote, length: 16 }]);
    until(&mut sides, |sides| sides.iter().all(|side| !side.log.ended.is_empty()));
    assert_eq!(sides[0].log.landed, [(4, b"the last message".to_vec())]);
    assert_eq!(sides.each_mut().map(Side::missing), [0, 0]);
}
