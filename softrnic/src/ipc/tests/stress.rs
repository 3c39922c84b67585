//! Wake-ups: none is lost, however those who sleep and those who wake meet.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{End, HERE, answer, end, part, until};
use crate::wire::packet::{BLOCK, Packet, Payload};
use crate::wire::transport::{Carrier, Stuck, Transport, Wake};

/// Puts a packet in, and waits for room where there is none, as a queue pair does.
fn put(end: &End, way: &Arc<dyn Carrier>, packet: &Packet, bytes: &[u8]) {
    let payload = Payload::Bytes(&bytes[..packet.length() as usize]);
    loop {
        match way.put(packet, payload) {
            Ok(()) => return,
            Err(Stuck::Full) => {}
            Err(stuck) => panic!("{stuck:?}"),
        }
        let before = end.seen.room.0.load(Ordering::SeqCst);
        let waiting: Weak<dyn Wake> = Arc::downgrade(&end.seen.room) as Weak<dyn Wake>;
        way.wake(waiting);
        match way.put(packet, payload) {
            Ok(()) => return,
            Err(Stuck::Full) => until(|| end.seen.room.0.load(Ordering::SeqCst) != before),
            Err(stuck) => panic!("{stuck:?}"),
        }
    }
}

/// Polls now and then.
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
    let way = here.host.carrier(HERE, block * BLOCK).unwrap();
    let bytes = vec![7; 16 << 10];
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        if with_polls {
            scope.spawn(|| polls(&here, &is_over));
            scope.spawn(|| polls(&there, &is_over));
        }
        let answers = scope.spawn(|| {
            until(|| there.seen.back.lock().unwrap().is_some());
            let back = there.seen.back.lock().unwrap().clone().unwrap();
            for number in 0..COUNT {
                put(&there, &back, &Packet::Answer(answer(number)), &[]);
                if number % 4096 == 17 {
                    // Long enough for everybody to fall asleep.
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        });
        for number in 0..COUNT {
            put(&here, &way, &Packet::Part(part(number, number * 61 % 9000)), &bytes);
            if number % 4096 == 99 {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        answers.join().unwrap();
        until(|| there.seen.parts.lock().unwrap().len() == COUNT as usize);
        until(|| here.seen.answers.lock().unwrap().len() == COUNT as usize);
        is_over.store(true, Ordering::Relaxed);
    });
    let parts = there.seen.parts.lock().unwrap();
    assert!(parts.iter().zip(0..).all(|((part, bytes), number)| {
        part.number == number && bytes.len() == part.length as usize && bytes.iter().all(|&byte| byte == 7)
    }));
    let answers = here.seen.answers.lock().unwrap();
    assert!(answers.iter().zip(0..).all(|((answer, _), number)| answer.number == number));
}

#[test]
#[cfg_attr(miri, ignore = "makes sockets")]
fn none_is_lost_while_nobody_polls() {
    goes_there_and_back(false);
}

#[test]
#[cfg_attr(miri, ignore = "makes sockets")]
fn none_is_lost_while_programs_poll_now_and_then() {
    goes_there_and_back(true);
}

#[test]
#[cfg_attr(miri, ignore = "makes sockets")]
fn one_message_at_a_time_wakes_the_other_end_each_time() {
    let (here, there) = (end(), end());
    let block = there.host.claim().unwrap();
    here.host.claim().unwrap();
    let way = here.host.carrier(HERE, block * BLOCK).unwrap();
    for number in 0..2000 {
        way.put(&Packet::Part(part(number, 0)), Payload::Bytes(&[])).unwrap();
        // From just after it has gone to sleep to long after.
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
