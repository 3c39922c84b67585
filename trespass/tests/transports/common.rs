//! Functions that the tests share.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use sideway::ibverbs::device::{DeviceInfo, DeviceList};
use trespass::{Acceptor, Connection, Failure, Handle, Options, Transport};

/// Returns the name of the RDMA device to test on, if it is not a device of softrnic.
fn name() -> Option<String> {
    std::env::var("SIDEWAY_TEST_DEVICE").ok()
}

/// Returns an address of the RDMA device to test on, with port 0. Registers softrnic, unless the environment names
/// another device.
pub(crate) fn device() -> String {
    let Some(name) = name() else {
        softrnic::register().unwrap();
        return "127.0.0.1:0".to_owned();
    };
    let devices = DeviceList::new().unwrap();
    let device = devices.iter().find(|device| device.name() == name).unwrap();
    let gids = device.open().unwrap().query_gid_table().unwrap();
    let address = gids.iter().find_map(|entry| entry.gid().ipv4()).unwrap();
    format!("{address}:0")
}

/// Creates a worker that uses only this transport.
pub(crate) fn worker(transport: Transport) -> Handle {
    worker_with(transport, Options::default().linger)
}

fn worker_with(transport: Transport, linger: Duration) -> Handle {
    try_worker(transport, linger).unwrap()
}

pub(crate) fn try_worker(transport: Transport, linger: Duration) -> io::Result<Handle> {
    let mut options = Options::default();
    options.transport = transport;
    options.device = name();
    options.memory = 64 << 20;
    // This is more than the largest window, 64 segments of 16 KiB.
    options.send_high_water = 2 << 20;
    options.linger = linger;
    Handle::new(&options)
}

/// Runs a test over RDMA and over TCP.
pub(crate) fn on_both(test: impl Fn(Transport)) {
    device();
    test(Transport::Rdma);
    test(Transport::Tcp);
}

/// Creates a connection between two workers, and returns its two ends.
pub(crate) fn pair(transport: Transport) -> (Connection, Connection) {
    pair_with(transport, Options::default().linger)
}

/// Creates a connection between two workers with this linger time, and returns its two ends.
pub(crate) fn pair_with(transport: Transport, linger: Duration) -> (Connection, Connection) {
    let (server, client) = (worker_with(transport, linger), worker_with(transport, linger));
    let acceptor = Acceptor::bind_on(&server, device()).unwrap();
    let connection = Connection::connect_on(&client, acceptor.local_addr(), None).unwrap();
    let accepted = acceptor.accept_until(Some(Instant::now() + Duration::from_secs(60))).unwrap();
    (connection, accepted)
}

/// Returns bytes whose values depend on their positions and on the seed.
pub(crate) fn bytes(length: usize, seed: usize) -> Vec<u8> {
    let mut state = seed as u64 + 1;
    let mut next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Sends until the connection accepts nothing more. The peer does not read, so more than one window of data then waits
/// on this side. [`worker`] sets the high-water mark. Returns the number of messages.
pub(crate) fn fill(connection: &Connection) -> usize {
    let (mut full, mut sent) = (0, 0);
    // Credits of the peer may still arrive, so the connection is full only if several attempts in a row fail.
    while full < 10 {
        if connection.try_send(&[1; 1_000]).is_ok() {
            (full, sent) = (0, sent + 1);
        } else {
            full += 1;
            thread::sleep(Duration::from_millis(20));
        }
    }
    sent
}

/// Whether an error is the reason why the connection ended.
pub(crate) fn has_ended(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Failure>())
}
