use std::collections::HashSet;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

#[test]
#[cfg_attr(miri, ignore = "makes system calls")]
fn reserved_port_is_neither_reserved_again_nor_assigned() {
    let ports: Vec<Port> = (0..100).map(|_| Port::reserve()).collect();
    let numbers: HashSet<u16> = ports.iter().map(Port::number).collect();
    assert_eq!(numbers.len(), ports.len());
    assert!(numbers.iter().all(|number| (FIRST..END).contains(number)), "{numbers:?}");
    for &number in &numbers {
        assert_eq!(bound(number).unwrap_err().kind(), ErrorKind::AddrInUse);
    }
}

#[test]
#[cfg_attr(miri, ignore = "makes system calls")]
fn server_can_listen_on_a_reserved_port_again_and_again() {
    let port = Port::reserve();
    for host in ["127.0.0.1", "0.0.0.0", "127.0.0.1"] {
        let connect = || TcpStream::connect(("127.0.0.1", port.number()));
        assert_eq!(connect().unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let server = TcpListener::bind((host, port.number())).unwrap();
        let client = connect().unwrap();
        let accepted = server.accept().unwrap();
        // Connections of the port remain in the state TIME_WAIT.
        drop(accepted);
        drop(client);
        let second = TcpListener::bind((host, port.number()));
        assert_eq!(second.unwrap_err().kind(), ErrorKind::AddrInUse, "a server has the port");
    }
    // A server on all addresses of IPv6 and IPv4.
    match TcpListener::bind(("::", port.number())) {
        Ok(_server) => assert!(TcpStream::connect(("127.0.0.1", port.number())).is_ok()),
        Err(error) => eprintln!("no IPv6 here, so no server listened on it: {error}"),
    }
}

#[test]
#[cfg_attr(miri, ignore = "makes system calls")]
fn kernel_assigns_no_port_to_which_a_socket_is_bound() {
    // A port of the range from which the kernel assigns ports, reserved in the same way.
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
    let range: Vec<u16> = range.split_whitespace().map(|end| end.parse().unwrap()).collect();
    let (first, last) = (range[0], range[1]);
    let reserved: Vec<(u16, Socket)> =
        (first..=last).filter_map(|port| bound(port).ok().map(|socket| (port, socket))).take(200).collect();
    let reserved_ports: HashSet<u16> = reserved.iter().map(|(port, _)| *port).collect();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = server.local_addr().unwrap();
    for _ in 0..500 {
        let assigned = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(to).unwrap();
        for port in [assigned.local_addr().unwrap().port(), client.local_addr().unwrap().port()] {
            assert!(!reserved_ports.contains(&port), "{port}");
        }
        drop(server.accept().unwrap());
    }
}

#[test]
#[cfg_attr(miri, ignore = "makes system calls")]
fn dropped_port_is_free_and_a_kept_one_is_not() {
    let kept = Port::reserve().keep();
    assert_eq!(bound(kept).unwrap_err().kind(), ErrorKind::AddrInUse);
    let port = Port::reserve();
    let number = port.number();
    drop(port);
    // Another process may have reserved it in the meantime, but not each time.
    let frees = |number| (0..100).any(|_| bound(number).is_ok());
    assert!(frees(number));
}

#[test]
#[cfg_attr(miri, ignore = "makes system calls")]
fn multicast_groups_of_two_ports_differ() {
    let [one, other] = [Port::reserve(), Port::reserve()];
    assert!(one.group(1).is_multicast() && one.group(1) != one.group(2) && one.group(1) != other.group(1));
}

#[test]
#[cfg_attr(miri, ignore = "makes system calls")]
fn turns_do_not_overlap() {
    let name = unique("turns-");
    let turns = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let _turn = Turn::wait_for(&name).unwrap();
                assert_eq!(turns.fetch_add(1, Ordering::SeqCst), 0);
                thread::sleep(Duration::from_millis(5));
                turns.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    assert!(Turn::wait_for(&"x".repeat(200)).is_err());
}

#[test]
#[cfg_attr(miri, ignore = "makes system calls")]
fn folder_exists_until_it_is_dropped() {
    let (one, other) = (Folder::new(), Folder::new());
    assert_ne!(one.path(), other.path());
    fs::write(one.join("file"), "text").unwrap();
    let path = one.path().to_owned();
    drop(one);
    assert!(!path.exists() && other.path().is_dir());
    // A folder that the test has removed is no error.
    fs::remove_dir(other.path()).unwrap();
}

#[test]
fn unique_names_differ_and_fit_a_network_device() {
    let names: HashSet<String> = (0..1000).map(|_| unique("bad")).collect();
    assert!(names.len() == 1000 && names.iter().all(|name| name.len() == 15));
}
