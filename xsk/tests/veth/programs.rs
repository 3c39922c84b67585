//! Tests programs of the user that change, drop or distribute packets before they reach a socket.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use xsk::{AttachMode, Filter, Program, Socket, Umem};

use crate::link::{End, frame, frames, transfer};
use crate::net::Net;
use crate::own::{adjust_tail, drop_odd, load, write_metadata};

/// Creates two ends with multi-buffer, for jumbo frames.
fn jumbo() -> Option<(Net, End, End)> {
    let net = Net::with("numrxqueues 1 numtxqueues 1", 9000)?;
    let open = |interface| End::multi_buffer(interface, Umem::builder(4096));
    let (from, to) = open(&net.a).zip(open(&net.b))?;
    Some((net, from, to))
}

/// Sends a packet of several pieces.
fn send_pieces(from: &mut End, whole: &[u8]) {
    let mut pieces = whole.chunks(3000).map(|bytes| from.packet(bytes)).collect();
    assert!(from.queue.tx.batch(18).send_pieces(&mut pieces));
    from.flush();
}

#[test]
fn program_loads_on_a_thread_that_receives_signals() {
    extern "C" fn ignore(_: libc::c_int) {}
    let Some(_net) = Net::new() else { return };
    // SAFETY: the handler does nothing, so it may interrupt any code.
    unsafe { libc::signal(libc::SIGUSR1, ignore as *const () as libc::sighandler_t) };
    let is_done = AtomicBool::new(false);
    // SAFETY: the call has no conditions.
    let loader = unsafe { libc::pthread_self() };
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                // SAFETY: the loading thread exists until this scope ends.
                unsafe { libc::pthread_kill(loader, libc::SIGUSR1) };
                thread::sleep(Duration::from_micros(20));
            }
        });
        let loaded: Result<Vec<_>, _> = (0..300).map(|_| Program::load(Filter::All).map(drop)).collect();
        is_done.store(true, Ordering::Relaxed);
        assert_eq!(loaded.unwrap().len(), 300);
    });
}

#[test]
fn program_drops_half_of_the_packets() {
    for mode in [AttachMode::Native, AttachMode::Generic] {
        let Some(net) = Net::new() else { return };
        let (mut from, mut to) = (End::new(&net.a), End::new(&net.b));
        let program = load(drop_odd(), false, false);
        to.join(&program);
        let _attached = program.attach(&net.b, mode).unwrap();
        from.send(frames(32, 64));
        let even: Vec<_> = (0..32).step_by(2).map(|number| frame(number, 64)).collect();
        assert!(to.receive(16) == even);
        to.assert_silent();
    }
}

#[test]
fn metadata_of_the_program_lies_in_front_of_the_packet() {
    let Some(net) = Net::new() else { return };
    let (mut from, mut to) = (End::new(&net.a), End::new(&net.b));
    let program = load(write_metadata(0x0dec_ade5), false, false);
    to.join(&program);
    let _attached = program.attach(&net.b, AttachMode::Native).unwrap();
    from.send(frames(4, 100));
    assert!(to.queue.rx.wait(Duration::from_secs(60)).unwrap());
    let mut count = 0;
    for packet in to.queue.rx.batch(4) {
        assert_eq!(packet.rx_metadata(4), Some(&0x0dec_ade5_u32.to_ne_bytes()[..]));
        assert_eq!(packet.bytes(), frame(count, 100));
        assert_eq!(packet.rx_metadata(usize::MAX), None);
        count += 1;
    }
    assert_eq!(count, 4);
}

#[test]
fn metadata_of_the_program_lies_in_front_of_the_first_piece() {
    let Some((net, mut from, mut to)) = jumbo() else { return };
    let program = load(write_metadata(0x0dec_ade5), false, true);
    to.join(&program);
    let _attached = program.attach(&net.b, AttachMode::Native).unwrap();
    send_pieces(&mut from, &frame(1, 9000));
    assert!(to.queue.rx.wait(Duration::from_secs(60)).unwrap());
    let first = to.queue.rx.batch(1).next().unwrap();
    assert!(first.continues());
    assert_eq!(first.rx_metadata(4), Some(&0x0dec_ade5_u32.to_ne_bytes()[..]));
}

#[test]
fn program_shortens_and_extends_packets() {
    for (change, len) in [(-60, 140), (4, 204)] {
        let Some(net) = Net::new() else { return };
        let (mut from, mut to) = (End::new(&net.a), End::new(&net.b));
        let program = load(adjust_tail(change), false, false);
        to.join(&program);
        let _attached = program.attach(&net.b, AttachMode::Native).unwrap();
        from.send(frames(8, 200));
        for (number, packet) in to.receive(8).into_iter().enumerate() {
            assert_eq!(packet.len(), len);
            let same = len.min(200);
            assert_eq!(packet[..same], frame(number as u32, 200)[..same]);
        }
    }
}

#[test]
fn program_shortens_and_extends_packets_of_several_pieces() {
    for (change, len) in [(-60, 8940), (-8000, 1000), (16, 9016)] {
        let Some((net, mut from, mut to)) = jumbo() else { return };
        let program = load(adjust_tail(change), false, true);
        to.join(&program);
        let _attached = program.attach(&net.b, AttachMode::Native).unwrap();
        let whole = frame(3, 9000);
        send_pieces(&mut from, &whole);
        let received = &to.receive(1)[0];
        // veth of Linux 6.18 does not extend packets of several pieces: the program's call fails and the packet stays
        // as it is.
        let is_unchanged = change > 0 && received == &whole;
        assert!(received.len() == len || is_unchanged, "{change}: {}", received.len());
        let same = received.len().min(9000);
        assert!(received[..same] == whole[..same]);
    }
}

#[test]
fn sockets_of_one_queue_receive_what_the_program_selects() {
    let Some(net) = Net::new() else { return };
    let (mut from, mut to) = (End::new(&net.a), End::new(&net.b));
    let mut second = Socket::builder(&net.b, 0).share(to.queue.rx.socket()).unwrap();
    let program = load(Vec::new(), true, false);
    to.join(&program);
    program.map().insert_at(1, std::os::fd::AsFd::as_fd(&second.rx)).unwrap();
    let _attached = program.attach(&net.b, AttachMode::Native).unwrap();
    from.send(frames(32, 64));
    let of = |parity| (parity..32).step_by(2).map(|number| frame(number, 64)).collect::<Vec<_>>();
    assert!(to.receive(16) == of(0));
    assert!(second.rx.wait(Duration::from_secs(60)).unwrap());
    let odd: Vec<_> = second.rx.batch(64).map(|packet| packet.bytes().to_vec()).collect();
    assert!(odd == of(1));
}

#[test]
fn slot_of_the_map_takes_another_socket() {
    let Some(net) = Net::new() else { return };
    let (mut from, mut to) = (End::new(&net.a), End::new(&net.b));
    let mut second = Socket::builder(&net.b, 0).share(to.queue.rx.socket()).unwrap();
    let (program, _attached) = to.steer(&net.b, AttachMode::Native, false);
    transfer(&mut from, &mut to, &frames(32, 64));
    program.map().insert(second.rx.socket()).unwrap();
    from.send([frame(7, 64)]);
    assert!(second.rx.wait(Duration::from_secs(60)).unwrap());
    assert_eq!(second.rx.batch(64).next().unwrap().bytes(), frame(7, 64));
    to.assert_silent();
}

#[test]
fn pieces_are_not_forwarded_as_packets() {
    let Some((net, mut from, mut to)) = jumbo() else { return };
    let (_one, _two) = (to.steer(&net.b, AttachMode::Native, true), from.steer(&net.a, AttachMode::Native, true));
    let mut edited = 0;
    for round in 0..3 {
        send_pieces(&mut from, &frame(round, 9000));
        from.send([frame(round + 10, 60)]);
        // A batch may end within a packet.
        let mut left = 4;
        while left != 0 {
            assert!(to.queue.rx.wait(Duration::from_secs(60)).unwrap());
            left -= match round {
                0 => to.queue.rx.batch(64).forward(&mut to.queue.tx, |_| edited += 1),
                1 => to.queue.rx.batch(1).forward(&mut to.queue.tx, |_| edited += 1),
                _ if left == 4 => to.queue.rx.batch(2).map(drop).count(),
                _ => to.queue.rx.batch(1).forward(&mut to.queue.tx, |_| edited += 1),
            };
        }
        to.flush();
        assert!(from.receive(1) == [frame(round + 10, 60)]);
        from.assert_silent();
    }
    assert_eq!(edited, 3);
}
