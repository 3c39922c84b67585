//! Tests programs, sharing, errors, privileges and the end of sockets.

use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use xsk::{AttachMode, ErrorKind, Filter, Interface, Program, Socket, SocketMap, Step, TxMetadata, Umem};

use crate::link::{End, frame, frames, transfer};
use crate::net::{Net, did_not_run, run};

/// Ethernet and IPv4 with these fields, and a UDP port.
fn ipv4(version: u8, fragment: u16, protocol: u8, port: u16) -> Vec<u8> {
    let mut bytes = vec![2; 12];
    bytes.extend([8, 0, version, 0, 0, 28, 0, 0]);
    bytes.extend(fragment.to_be_bytes());
    bytes.extend([64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2, 0, 1]);
    bytes.extend(port.to_be_bytes());
    bytes.extend([0, 8, 0, 0]);
    bytes
}

fn ipv6(next: u8, port: u16) -> Vec<u8> {
    let mut bytes = vec![2; 12];
    bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, next, 64]);
    bytes.extend([0; 32]);
    bytes.extend([0, 1]);
    bytes.extend(port.to_be_bytes());
    bytes.extend([0, 8, 0, 0]);
    bytes
}

#[test]
fn programs_give_the_right_verdict_on_thirty_frames() {
    let Some(net) = Net::new() else { return };
    let end = End::new(&net.a);
    let load = |filter| {
        let program = Program::load(filter).unwrap();
        program.map().insert(end.queue.rx.socket()).unwrap();
        program
    };
    let (all, udp, other) = (load(Filter::All), load(Filter::UdpPort(4791)), load(Filter::EtherType(0x88b5)));
    let is_passed = |program: &Program, bytes: &[u8]| program.test(bytes).unwrap() == 4;
    let cut = |bytes: &[u8], len: usize| bytes[..len].to_vec();
    let (v4, v6) = (ipv4(0x45, 0, 17, 4791), ipv6(17, 4791));
    // For each case: a frame, whether it is UDP to the filter's port, and whether it has the filter's EtherType.
    let mut cases = vec![
        (v4.clone(), true, false),
        (v6.clone(), true, false),
        (frame(0, 60), false, true),
        (frame(0, 1400), false, true),
        (frame(0, 15), false, true),
        ([v4.clone(), vec![0; 1400]].concat(), true, false),
        ([v6.clone(), vec![0; 1400]].concat(), true, false),
        (ipv4(0x45, 0x4000, 17, 4791), true, false),
    ];
    let none = [
        ipv4(0x45, 0, 17, 4790),
        ipv4(0x45, 0, 17, 0xb712),
        ipv4(0x45, 0, 6, 4791),
        ipv4(0x45, 0, 1, 4791),
        ipv4(0x46, 0, 17, 4791),
        ipv4(0x65, 0, 17, 4791),
        ipv4(0x45, 0x2000, 17, 4791),
        ipv4(0x45, 1, 17, 4791),
        ipv4(0x45, 0x1fff, 17, 4791),
        ipv6(17, 4790),
        ipv6(17, 0xb712),
        ipv6(6, 4791),
        ipv6(44, 4791),
        ipv6(0, 4791),
        cut(&v4, 41),
        cut(&v4, 34),
        cut(&v4, 20),
        cut(&v6, 61),
        cut(&v6, 54),
        cut(&v6, 42),
        [vec![2; 12], vec![0x81, 0], vec![0; 50]].concat(),
        [vec![2; 12], vec![8, 6], vec![0; 46]].concat(),
    ];
    cases.extend(none.into_iter().map(|bytes| (bytes, false, false)));
    assert_eq!(cases.len(), 30);
    for (bytes, is_udp, is_other) in cases {
        let verdicts = [&all, &udp, &other].map(|program| is_passed(program, &bytes));
        assert_eq!(verdicts, [true, is_udp, is_other], "{bytes:02x?}");
    }
    udp.map().remove(0).unwrap();
    assert_eq!(udp.test(&v4).unwrap(), 2, "without a socket, the kernel receives the packet");
}

#[test]
fn filtered_packets_reach_the_socket_and_others_the_kernel() {
    let Some(net) = Net::new() else { return };
    let (mut from, mut to) = (End::new(&net.a), End::new(&net.b));
    let program = Program::load(Filter::UdpPort(4791)).unwrap();
    program.map().insert(to.queue.rx.socket()).unwrap();
    let _attached = program.attach(&net.b, AttachMode::Auto).unwrap();
    from.send([frame(0, 60), ipv4(0x45, 0, 17, 4791), ipv4(0x45, 0, 17, 53)]);
    assert!(to.receive(1) == [ipv4(0x45, 0, 17, 4791)]);
    to.assert_silent();
}

#[test]
fn dropped_link_detaches_the_program() {
    let Some(net) = Net::new() else { return };
    let (mut from, mut to) = (End::new(&net.a), End::new(&net.b));
    for mode in [AttachMode::Native, AttachMode::Generic] {
        let (_program, attached) = to.steer(&net.b, mode, false);
        transfer(&mut from, &mut to, &frames(8, 60));
        drop(attached);
        // The forked child of a concurrent test keeps the link until the child executes another program.
        let arrives = |from: &mut End, to: &mut End| {
            from.send([frame(0, 60)]);
            let arrives = to.queue.rx.wait(Duration::from_millis(50)).unwrap();
            to.queue.rx.batch(1).recycle(&mut to.queue.fill, |_| {});
            arrives
        };
        let start = Instant::now();
        while arrives(&mut from, &mut to) {
            assert!(start.elapsed() < Duration::from_secs(60), "the program stays attached");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn program_and_map_of_the_caller_are_used() {
    let Some(net) = Net::new() else { return };
    let (mut from, mut to) = (End::new(&net.a), End::new(&net.b));
    let made = Program::load(Filter::All).unwrap();
    let duplicate = |fd: std::os::fd::BorrowedFd<'_>| -> OwnedFd { fd.try_clone_to_owned().unwrap() };
    let program = Program::from_parts(duplicate(made.as_fd()), SocketMap::from(duplicate(made.map().as_fd())));
    drop(made);
    program.map().insert_at(0, to.queue.rx.as_fd()).unwrap();
    let _attached = program.attach(&net.b, AttachMode::Auto).unwrap();
    transfer(&mut from, &mut to, &frames(8, 60));
}

#[test]
fn attach_errors_name_their_cause() {
    let Some(net) = Net::with("numrxqueues 1 numtxqueues 1", 9000) else { return };
    let kind = |program: &Program, interface: &Interface, mode| program.attach(interface, mode).unwrap_err().kind();
    let (small, large) = (Program::load(Filter::All).unwrap(), Program::load_multi_buffer(Filter::All).unwrap());
    assert_eq!(kind(&small, &net.a, AttachMode::Native), ErrorKind::MtuTooLarge);
    assert!(!small.attach(&net.a, AttachMode::Auto).unwrap().is_native());
    let first = large.attach(&net.a, AttachMode::Native).unwrap();
    assert_eq!(kind(&large, &net.a, AttachMode::Native), ErrorKind::ProgramAttached);
    assert_eq!(kind(&small, &net.a, AttachMode::Generic), ErrorKind::OtherMode);
    drop(first);
    let lo = Interface::by_name("lo").unwrap();
    assert_eq!(kind(&small, &lo, AttachMode::Native), ErrorKind::NoNativeMode);
    assert!(!small.attach(&lo, AttachMode::Auto).unwrap().is_native());
    assert!(run("ip link del v0"));
    assert_eq!(kind(&large, &net.a, AttachMode::Native), ErrorKind::NoInterface);
    let end = SocketMap::new(1).unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    assert_eq!(end.insert_at(1, file.as_fd()).unwrap_err().step(), Step::UpdateMap);
}

#[test]
fn bind_errors_name_their_cause() {
    let Some(net) = Net::new() else { return };
    let (umem, _pool) = Umem::builder(64).build().unwrap();
    let error = Socket::builder(&net.a, 5).open(&umem).unwrap_err();
    assert_eq!((error.kind(), error.errno()), (ErrorKind::NoQueue, libc::EINVAL), "{error}");
    let _first = Socket::builder(&net.a, 0).open(&umem).unwrap();
    let error = Socket::builder(&net.a, 0).open(&umem).unwrap_err();
    assert!(error.to_string().contains("SocketBuilder::share"), "{error}");
    let (other, _pool) = Umem::builder(64).build().unwrap();
    let error = Socket::builder(&net.a, 0).busy_timeout(Duration::ZERO).open(&other).unwrap_err();
    assert_eq!((error.kind(), error.step()), (ErrorKind::QueueBusy, Step::Bind), "{error}");
    let error = Socket::builder(&net.b, 0).ring_size(100).open(&other).unwrap_err();
    assert!(error.to_string().contains("power of two"), "{error}");
    let error = Interface::by_name("absent").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoInterface, "{error}");
    assert!(Interface::by_name("\0").is_err() && Interface::by_index(4_000_000).is_err());
    assert!(run("ip link del v0"));
    let error = Socket::builder(&net.b, 0).open(&other).unwrap_err();
    assert_eq!((error.kind(), error.errno()), (ErrorKind::NoInterface, libc::ENODEV), "{error}");
}

#[test]
fn removed_interface_is_reported() {
    let Some(net) = Net::new() else { return };
    let mut end = End::new(&net.a);
    assert!(run("ip link del v0"));
    let error = end.queue.rx.wait(Duration::from_millis(50)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceGone, "{error}");
    assert!(!end.queue.rx.wait(Duration::from_millis(5)).unwrap(), "the kernel reports it once");
    let packet = end.packet(&frame(0, 60));
    end.queue.tx.batch(1).send(packet).unwrap();
    assert_eq!(end.queue.tx.wake().unwrap_err().kind(), ErrorKind::DeviceGone);
}

#[test]
fn link_that_is_down_is_reported() {
    let Some(net) = Net::new() else { return };
    let mut end = End::new(&net.a);
    assert!(run("ip link set v0 down"));
    let packet = end.packet(&frame(0, 60));
    end.queue.tx.batch(1).send(packet).unwrap();
    assert!(matches!(end.queue.tx.wake().unwrap_err().kind(), ErrorKind::LinkDown | ErrorKind::DeviceGone));
}

#[test]
fn queue_opens_again_after_a_socket_is_closed() {
    let Some(net) = Net::new() else { return };
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    drop(End::new(&net.a));
    let before = count();
    for _ in 0..20 {
        let end = End::new(&net.a);
        assert_eq!(end.umem.frames(), 4096);
    }
    // Other tests of this process open descriptors too.
    assert!(count() < before + 20 * 2, "descriptors are left");
}

#[test]
fn umem_is_shared_between_interfaces() {
    let Some(net) = Net::new() else { return };
    let (umem, mut pool) = Umem::builder(8192).build().unwrap();
    let mut a = Socket::builder(&net.a, 0).open(&umem).unwrap();
    let mut b = Socket::builder(&net.b, 0).open(&umem).unwrap();
    b.fill.refill(&mut pool);
    let program = Program::load(Filter::All).unwrap();
    program.map().insert(b.rx.socket()).unwrap();
    let _attached = program.attach(&net.b, AttachMode::Native).unwrap();
    let packet = pool.take().unwrap().packet_from(&frame(1, 60)).unwrap();
    a.tx.batch(1).send(packet).unwrap();
    a.tx.wake().unwrap();
    assert!(b.rx.wait(Duration::from_secs(60)).unwrap());
    // A packet from one interface is sent on it, and its frame returns to the common pool.
    assert_eq!(b.rx.batch(1).forward(&mut b.tx, |packet| assert_eq!(packet.bytes(), frame(1, 60))), 1);
    b.tx.wake().unwrap();
    assert!(a.completion.collect(&mut pool) + b.completion.collect(&mut pool) >= 1);
}

#[test]
fn sockets_share_a_queue() {
    let Some(net) = Net::new() else { return };
    let mut to = End::new(&net.b);
    let _steered = to.steer(&net.b, AttachMode::Native, false);
    let mut from = End::new(&net.a);
    let mut second = Socket::builder(&net.a, 0).share(from.queue.rx.socket()).unwrap();
    let packet = from.packet(&frame(9, 60));
    second.tx.batch(1).send(packet).unwrap();
    second.tx.wake().unwrap();
    assert!(to.receive(1) == [frame(9, 60)]);
    let before = from.pool.len();
    from.collect();
    assert_eq!(from.pool.len(), before + 1, "the frame returns to the completion ring of the first socket");
    let error = Socket::builder(&net.b, 0).busy_timeout(Duration::ZERO).share(from.queue.rx.socket()).unwrap_err();
    assert_eq!(error.step(), Step::Bind, "{error}");
}

#[test]
fn transmit_metadata_writes_timestamp_and_checksum() {
    let Some(net) = Net::new() else { return };
    let mut memory = Umem::builder(4096);
    memory.software_checksum(true);
    let mut from = match End::with(&net.a, memory, |socket| socket) {
        Ok(end) => end,
        Err(error) if error.step() == Step::RegisterUmem => return did_not_run("TX metadata needs Linux 6.8"),
        Err(error) => panic!("{error}"),
    };
    let mut to = End::new(&net.b);
    let _steered = to.steer(&net.b, AttachMode::Native, false);
    let bytes = ipv4(0x45, 0, 17, 4791);
    let mut packet = from.packet(&bytes);
    packet.set_tx_metadata(&TxMetadata::new().timestamp().checksum(34, 6)).unwrap();
    from.queue.tx.batch(1).send(packet).unwrap();
    from.queue.tx.wake().unwrap();
    let received = &to.receive(1)[0];
    assert_ne!(received[40..42], [0, 0], "the checksum was written");
    assert_eq!(received[..40], bytes[..40]);
    let sent = from.queue.completion.batch(1).next().unwrap();
    assert!(sent.timestamp().is_some_and(|time| time > 0), "{sent:?}");
}

#[test]
fn passed_socket_sends_and_used_ones_are_refused() {
    let Some(net) = Net::new() else { return };
    // SAFETY: the call takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW, 0) };
    // SAFETY: the descriptor is new.
    let socket = unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd) };
    let again = socket.try_clone().unwrap();
    let (umem, mut pool) = Umem::builder(64).build().unwrap();
    let mut queue = Socket::builder(&net.a, 0).socket(socket).open_tx(&umem).unwrap();
    queue.tx.batch(1).send(pool.take().unwrap().packet_from(&frame(0, 60)).unwrap()).unwrap();
    queue.tx.wake().unwrap();
    assert_eq!(queue.completion.collect(&mut pool), 1);
    let (other, _pool) = Umem::builder(64).build().unwrap();
    let error = Socket::builder(&net.b, 0).socket(again).open_tx(&other).unwrap_err();
    assert!(matches!(error.step(), Step::RegisterUmem | Step::SizeRing), "{error}");
}

#[test]
fn missing_rights_are_reported() {
    let Some(net) = Net::new() else { return };
    // Only the thread of this test loses its privileges. SAFETY: the call takes no pointers; 65534 is a user without
    // privileges.
    if unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) } != 0 {
        return did_not_run("cannot change the user of a thread");
    }
    let (umem, _pool) = Umem::builder(16).build().unwrap();
    let error = Socket::builder(&net.a, 0).open(&umem).unwrap_err();
    assert_eq!((error.kind(), error.step()), (ErrorKind::PermissionDenied, Step::OpenSocket), "{error}");
    let error = Program::load(Filter::All).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
}

#[test]
fn sending_needs_no_rights_in_a_user_namespace() {
    let thread = thread::spawn(|| -> Result<(), String> {
        // Runs as a separate program, because a thread of a multi-threaded process cannot enter a user namespace.
        let script = "ip link add name v0 type veth peer name v1 && ip link set v0 up && ip link set v1 up";
        let done = std::process::Command::new("unshare").args(["-Urn", "sh", "-c", script]).output();
        match done {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => Err(error.to_string()),
        }
    });
    if let Err(why) = thread.join().unwrap() {
        return did_not_run(&format!("no user namespace: {}", why.trim()));
    }
    // This test program, as the root of that namespace.
    let program = std::env::current_exe().unwrap();
    let mut command = std::process::Command::new("unshare");
    command.args(["-Urn"]).arg(program).args(["--exact", "traffic::full_tx_ring_refuses_packets_and_recovers"]);
    let output = command.env("XSK_REQUIRE_NETNS", "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
