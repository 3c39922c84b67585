//! Provokes each error that the kernel returns for AF_XDP: by its cause if possible, otherwise by a filter for system
//! calls.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::time::Duration;

use xsk::{AttachMode, BusyPoll, Error, ErrorKind, Filter, Program, Socket, SocketMap, Step, TxMetadata, Umem};

use crate::failing::fail;
use crate::link::{End, frame};
use crate::net::{Net, did_not_run, run};

/// Returns step and kind of an error. Checks that its text has a cause and a remedy.
fn parts(error: &Error) -> (Step, ErrorKind) {
    let text = error.to_string();
    assert!(text.matches(": ").count() >= 2 && text.contains(';'), "no cause or no remedy: {text}");
    (error.step(), error.kind())
}

/// Opens a socket in a thread in which this call fails, and returns step and kind of the error.
fn open_fails(net: &Net, call: libc::c_long, argument: u32, value: i32, errno: i32) -> (Step, ErrorKind) {
    std::thread::scope(|scope| {
        let open = || {
            let (umem, _pool) = Umem::builder(64).build().unwrap();
            fail(call, argument, value, errno);
            let mut builder = Socket::builder(&net.a, 0);
            builder.busy_timeout(Duration::ZERO).busy_poll(BusyPoll::default());
            parts(&builder.open(&umem).unwrap_err())
        };
        scope.spawn(open).join().unwrap()
    })
}

#[test]
fn failures_of_opening_name_their_cause() {
    use ErrorKind as K;
    let Some(net) = Net::new() else { return };
    let (socket, set, bind, map) = (libc::SYS_socket, libc::SYS_setsockopt, libc::SYS_bind, libc::SYS_mmap);
    let (reg, rx) = (libc::XDP_UMEM_REG, libc::XDP_RX_RING);
    let cases = [
        (socket, 0, libc::AF_XDP, libc::EPERM, Step::OpenSocket, K::PermissionDenied),
        (socket, 0, libc::AF_XDP, libc::EAFNOSUPPORT, Step::OpenSocket, K::Unsupported),
        (set, 2, reg, libc::ENOMEM, Step::RegisterUmem, K::OutOfMemory),
        (set, 2, reg, libc::ENOBUFS, Step::RegisterUmem, K::MemoryLimit),
        (set, 2, rx, libc::EINVAL, Step::SizeRing, K::InvalidOption),
        (set, 2, rx, libc::ENOMEM, Step::SizeRing, K::OutOfMemory),
        (set, 2, 69, libc::EPERM, Step::EnableBusyPoll, K::PermissionDenied),
        (set, 2, 69, libc::ENOPROTOOPT, Step::EnableBusyPoll, K::Unsupported),
        (map, 3, libc::MAP_SHARED | libc::MAP_POPULATE, libc::ENOMEM, Step::MapRing, K::OutOfMemory),
        (libc::SYS_getsockopt, 2, libc::XDP_MMAP_OFFSETS, libc::ENOPROTOOPT, Step::MapRing, K::Unsupported),
        (bind, 2, 16, libc::ENODEV, Step::Bind, K::NoInterface),
        (bind, 2, 16, libc::EOPNOTSUPP, Step::Bind, K::NoZeroCopy),
        (bind, 2, 16, libc::EBUSY, Step::Bind, K::QueueBusy),
        (bind, 2, 16, libc::EBADF, Step::Bind, K::InvalidOption),
        (bind, 2, 16, libc::EINVAL, Step::Bind, K::InvalidOption),
        (bind, 2, 16, libc::ENETDOWN, Step::Bind, K::LinkDown),
    ];
    for (call, argument, value, errno, step, kind) in cases {
        assert_eq!(open_fails(&net, call, argument, value, errno), (step, kind), "errno {errno} of call {call}");
    }
}

#[test]
fn geometry_that_the_kernel_rejects_is_reported() {
    let Some(net) = Net::new() else { return };
    // Newer kernels reserve space after a packet.
    let (umem, _pool) = Umem::builder(64).frame_size(2048).headroom(1792).build().unwrap();
    match Socket::builder(&net.a, 0).open(&umem) {
        Ok(_) => did_not_run("this kernel accepts the largest headroom"),
        Err(error) => assert_eq!(parts(&error), (Step::RegisterUmem, ErrorKind::InvalidOption), "{error}"),
    }
}

#[test]
fn memory_limit_is_reported() {
    const LIMITED: &str = "XSK_TEST_LIMITED";
    if std::env::var_os(LIMITED).is_none() {
        // Runs as root of a user namespace, which has no CAP_IPC_LOCK outside of that namespace.
        let program = std::env::current_exe().unwrap();
        let script = "ulimit -l 1024 && exec unshare -Urn \"$0\" --exact errors::memory_limit_is_reported --nocapture";
        let output = Command::new("sh").args(["-c", script]).arg(program).env(LIMITED, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        if text.contains("unshare:") {
            return did_not_run(&format!("no user namespace: {}", text.trim()));
        }
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    let Some(net) = Net::new() else { return };
    let (umem, _pool) = Umem::builder(1024).build().unwrap();
    let error = Socket::builder(&net.a, 0).open_tx(&umem).unwrap_err();
    assert_eq!(parts(&error), (Step::RegisterUmem, ErrorKind::MemoryLimit), "{error}");
}

#[test]
fn socket_that_is_pinned_to_another_interface_is_refused() {
    let Some(net) = Net::new() else { return };
    // SAFETY: the call takes no pointers, and the descriptor is new.
    let socket = unsafe { OwnedFd::from_raw_fd(libc::socket(libc::AF_XDP, libc::SOCK_RAW, 0)) };
    // SAFETY: the pointer leads to the bytes of a name.
    let pinned = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_BINDTODEVICE, c"v1".as_ptr().cast(), 3)
    };
    assert_eq!(pinned, 0);
    let (umem, _pool) = Umem::builder(64).build().unwrap();
    let error = Socket::builder(&net.a, 0).socket(socket).open_tx(&umem).unwrap_err();
    assert_eq!(parts(&error), (Step::Bind, ErrorKind::InvalidOption), "{error}");
    assert!(error.to_string().contains("SO_BINDTODEVICE"), "{error}");
}

#[test]
fn binding_to_a_link_that_is_down_works_or_is_reported() {
    let Some(net) = Net::new() else { return };
    assert!(run("ip link set v0 down"));
    let (umem, _pool) = Umem::builder(64).build().unwrap();
    if let Err(error) = Socket::builder(&net.a, 0).open_tx(&umem) {
        assert_eq!(parts(&error), (Step::Bind, ErrorKind::LinkDown), "{error}");
    }
}

#[test]
fn umem_of_a_removed_interface_does_not_bind_elsewhere() {
    let Some(net) = Net::new() else { return };
    assert!(run("ip link add name v2 type veth peer name v3"));
    let other = xsk::Interface::by_name("v2").unwrap();
    let (umem, _pool) = Umem::builder(64).build().unwrap();
    let first = Socket::builder(&net.a, 0).open_tx(&umem).unwrap();
    assert!(run("ip link del v0"));
    let error = Socket::builder(&other, 0).open_tx(&umem).unwrap_err();
    assert_eq!((error.step(), error.errno()), (Step::Bind, libc::EBADF), "{error}");
    drop(first);
}

#[test]
fn packet_that_the_device_drops_completes() {
    let Some(net) = Net::new() else { return };
    let mut end = End::new(&net.a);
    // Without its peer, the link has no carrier.
    assert!(run("ip link set v1 down"));
    let before = end.pool.len();
    let packet = end.packet(&frame(0, 60));
    end.queue.tx.batch(1).send(packet).unwrap();
    assert!(!end.queue.tx.wake().unwrap(), "the kernel returns EBUSY");
    assert_eq!(end.queue.completion.collect(&mut end.pool), 1);
    end.flush();
    assert_eq!(end.pool.len(), before);
}

#[test]
fn full_completion_ring_holds_packets_back_and_loses_none() {
    let Some(net) = Net::new() else { return };
    let mut end = End::with(&net.a, Umem::builder(256), |socket| socket.ring_size(32)).unwrap();
    for _ in 0..2 {
        let packets: Vec<_> = (0..32).map(|number| end.packet(&frame(number, 60))).collect();
        let mut batch = end.queue.tx.batch(32);
        packets.into_iter().for_each(|packet| batch.send(packet).unwrap());
        drop(batch);
        // Before Linux 6.17, the kernel publishes the entries that it has taken only with the second call.
        end.queue.tx.wake().unwrap();
    }
    assert!(!end.queue.tx.wake().unwrap(), "the completion ring is full");
    assert_eq!((end.queue.tx.pending(), end.queue.completion.available()), (32, 32));
    assert!(!end.queue.tx.wait(Duration::from_millis(5)).unwrap(), "a full ring is not writable");
    assert_eq!(end.queue.completion.collect(&mut end.pool), 32);
    assert!(end.queue.tx.wait(Duration::from_secs(60)).unwrap());
    end.flush();
    end.collect();
    assert_eq!(end.pool.len() + end.queue.fill.pending(), 256);
}

#[test]
fn rejected_descriptor_ends_sending() {
    let Some(net) = Net::new() else { return };
    let mut memory = Umem::builder(64);
    memory.tx_metadata(true);
    let Ok(mut end) = End::with(&net.a, memory, |socket| socket.ring_size(16)) else {
        return did_not_run("TX metadata needs Linux 6.8");
    };
    let mut packet = end.packet(&frame(0, 60));
    packet.set_tx_metadata(&TxMetadata::new().timestamp()).unwrap();
    end.queue.tx.batch(1).send(packet).unwrap();
    // The crate writes no such descriptor, so the test writes it.
    fail(libc::SYS_sendto, 3, libc::MSG_DONTWAIT, libc::EINVAL);
    for _ in 0..2 {
        let error = end.queue.tx.wake().unwrap_err();
        assert_eq!(parts(&error), (Step::Send, ErrorKind::Rejected), "{error}");
        let error = end.queue.rx.wait(Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Rejected, "poll sends too: {error}");
    }
}

#[test]
fn veth_with_more_queues_at_its_peer_has_no_native_mode() {
    let Some(net) = Net::with("numrxqueues 1 numtxqueues 1", 1500) else { return };
    assert!(run("ip link del v0"));
    let (few, many) = ("numrxqueues 1 numtxqueues 1", "numrxqueues 4 numtxqueues 4");
    assert!(run(&format!("ip link add name v0 {few} type veth peer name v1 {many}")));
    assert!(run("ip link set v0 up") && run("ip link set v1 up"));
    let few = xsk::Interface::by_name("v0").unwrap();
    let program = Program::load(Filter::All).unwrap();
    match program.attach(&few, AttachMode::Native) {
        Ok(_) => did_not_run("this kernel allows a peer with more queues"),
        Err(error) => assert_eq!(parts(&error), (Step::AttachProgram, ErrorKind::InvalidOption), "{error}"),
    }
    assert!(program.attach(&few, AttachMode::Auto).is_ok());
    drop(net);
}

#[test]
fn failures_of_programs_and_maps_name_their_cause() {
    use ErrorKind as K;
    let Some(net) = Net::new() else { return };
    let (create, update, load, link) = (0, 2, 5, 28);
    let cases = [
        (create, libc::EPERM, Step::CreateMap, K::PermissionDenied),
        (load, libc::EPERM, Step::LoadProgram, K::PermissionDenied),
        (load, libc::EINVAL, Step::LoadProgram, K::Unsupported),
        (link, libc::EBUSY, Step::AttachProgram, K::ProgramAttached),
        (link, libc::EEXIST, Step::AttachProgram, K::OtherMode),
        (link, libc::ERANGE, Step::AttachProgram, K::MtuTooLarge),
        (link, libc::EOPNOTSUPP, Step::AttachProgram, K::NoNativeMode),
        (link, libc::EINVAL, Step::AttachProgram, K::Unsupported),
        (update, libc::E2BIG, Step::UpdateMap, K::NoQueue),
        (update, libc::EOPNOTSUPP, Step::UpdateMap, K::InvalidOption),
    ];
    let provoke = |command, errno| -> Result<(), Error> {
        fail(libc::SYS_bpf, 0, command, errno);
        let program = Program::load(Filter::All)?;
        program.attach(&net.a, AttachMode::Native)?;
        program.map().insert_at(0, std::os::fd::AsFd::as_fd(&program))
    };
    for (command, errno, step, kind) in cases {
        let provoked = std::thread::scope(|scope| scope.spawn(|| provoke(command, errno)).join().unwrap());
        assert_eq!(parts(&provoked.unwrap_err()), (step, kind), "errno {errno} of command {command}");
    }
    let map = SocketMap::new(1).unwrap();
    let end = End::new(&net.a);
    let error = map.insert_at(1, std::os::fd::AsFd::as_fd(&end.queue.rx)).unwrap_err();
    assert_eq!(parts(&error), (Step::UpdateMap, K::NoQueue), "{error}");
}
