//! Tests that no wake-up is lost, in whatever order threads go to sleep and are woken.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{End, end, part, response, until};
use crate::wire::packet::{BLOCK, Packet, Payload};
use crate::wire::transport::{Carrier, Routes, Stuck, Transport, Wake};

/// Sends a packet. If there is no space, waits for it as a QP does.
fn put(end: &End, carrier: &Arc<dyn Carrier>, packet: &Packet, bytes: &[u8]) {
    let payload = Payload::Bytes(&bytes[..packet.length() as usize]);
    loop {
        match carrier.put(packet, payload) {
            Ok(()) => return,
            Err(Stuck::Full) => {}
            Err(stuck) => panic!("{stuck:?}"),
        }
        let before = end.seen.space.0.load(Ordering::SeqCst);
        let waiting: Weak<dyn Wake> = Arc::downgrade(&end.seen.space) as Weak<dyn Wake>;
        carrier.wake(waiting);
        match carrier.put(packet, payload) {
            Ok(()) => return,
            Err(Stuck::Full) => until(|| end.seen.space.0.load(Ordering::SeqCst) != before),
            Err(stuck) => panic!("{stuck:?}"),
        }
    }
}

/// Polls from time to time.
fn polls(end: &End, is_over: &AtomicBool) {
    let mut round = 0u32;
    while !is_over.load(Ordering::Relaxed) {
        for _ in 0..round * 7919 % 2000 {
            end.host.progress();
        }
        round = round.wrapping_add(1);
        std::thread::sleep(Duration::from_micros(u64::from(round * 31 % 3000)));
    }
}

fn goes_there_and_back(with_polls: bool) {
    const COUNT: u32 = 20_000;
    let (here, there) = (end(), end());
    let block = there.host.claim().unwrap();
    here.host.claim().unwrap();
    let carrier = here.host.carrier(block * BLOCK).unwrap();
    let bytes = vec![7; 16 << 10];
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        if with_polls {
            scope.spawn(|| polls(&here, &is_over));
            scope.spawn(|| polls(&there, &is_over));
        }
        let responses = scope.spawn(|| {
            until(|| there.seen.back.lock().unwrap().is_some());
            let back = there.seen.back.lock().unwrap().clone().unwrap();
            for number in 0..COUNT {
                put(&there, &back, &Packet::Response(response(number)), &[]);
                if number % 4096 == 17 {
                    // All other threads go to sleep during this pause.
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        });
        for number in 0..COUNT {
            put(&here, &carrier, &Packet::Part(part(number, number * 61 % 9000)), &bytes);
            if number % 4096 == 99 {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        responses.join().unwrap();
        until(|| there.seen.parts.lock().unwrap().len() == COUNT as usize);
        until(|| here.seen.responses.lock().unwrap().len() == COUNT as usize);
        is_over.store(true, Ordering::Relaxed);
    });
    let parts = there.seen.parts.lock().unwrap();
    assert!(parts.iter().zip(0..).all(|((part, bytes), number)| {
        part.number == number && bytes.len() == part.length as usize && bytes.iter().all(|&byte| byte == 7)
    }));
    let responses = here.seen.responses.lock().unwrap();
    assert!(responses.iter().zip(0..).all(|((response, _), number)| response.number == number));
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn no_wakeup_is_lost_without_polls() {
    goes_there_and_back(false);
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn no_wakeup_is_lost_with_occasional_polls() {
    goes_there_and_back(true);
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn each_message_wakes_the_other_end() {
    let (here, there) = (end(), end());
    let block = there.host.claim().unwrap();
    here.host.claim().unwrap();
    let carrier = here.host.carrier(block * BLOCK).unwrap();
    for number in 0..2000 {
        carrier.put(&Packet::Part(part(number, 0)), Payload::Bytes(&[])).unwrap();
        // The delay varies, so that the other end is either just going to sleep or has slept for a while.
        let until_then = std::time::Instant::now() + Duration::from_micros(u64::from(number % 64));
        while std::time::Instant::now() < until_then {
            std::hint::spin_loop();
        }
        if number % 16 == 0 {
            until(|| there.seen.parts.lock().unwrap().len() == number as usize + 1);
        }
    }
    until(|| there.seen.parts.lock().unwrap().len() == 2000);
}
