//! Peers that follow the frames of the protocol, but not its intentions.

use std::process::Command;
use std::time::{Duration, Instant};

use trespass::{Connection, Handle};
use trespass_rpc::wire::{Bulk, BulkKind, Flags, Frame, Header, Hello, Kind, write};
use trespass_rpc::{Attachment, Channel, Endpoint, Options, Server};
use trespass_rpc_ecosystem::{ADDRESS, LONG, options, transport_of, within};

use crate::bulk::{Kept, StoreClient, StoreServer};

/// If set, the test `child` serves a peer that announces long attachments, over this transport.
const ANNOUNCED: &str = "TRESPASS_RPC_TEST_ANNOUNCED";

/// A peer that sends the frames that a test writes.
pub(crate) struct Raw {
    connection: Connection,
    hello: Hello,
    /// The number of its next call.
    next: u32,
}

impl Raw {
    pub(crate) fn connect(options: &Options, address: &str) -> Self {
        let connection = Connection::connect_on(&Handle::new(&options.worker).unwrap(), address, Some(LONG)).unwrap();
        let hello = Hello {
            versions: (1, 1),
            calls: 16,
            bytes: 1 << 20,
            body: 1 << 20,
            window: 1 << 16,
            attachment: 1 << 40,
            nonce: 1,
            ends: (0, 0),
            methods: Vec::new(),
        };
        let mut bytes = Vec::new();
        write(&mut bytes, &Header::new(Kind::Hello, 0), &[], &[&hello.to_bytes()]);
        connection.send(&bytes).unwrap();
        let received = connection.recv_until(Some(Instant::now() + LONG)).unwrap().unwrap();
        let (frame, _) = Frame::split(&received).unwrap();
        let hello = Hello::parse(frame.body).unwrap();
        Self { connection, hello, next: 1 }
    }

    /// The numbers of the server's methods, but for those whose handlers allocate as many bytes as the caller states.
    pub(crate) fn methods(&self) -> Vec<u64> {
        let is_bounded = |name: &str| !["test.Sums/zeros", "test.Sums/count", "test.Store/slice"].contains(&name);
        let methods = self.hello.methods.iter().filter(|method| is_bounded(&method.name));
        methods.map(|method| method.id).collect()
    }

    /// Sends bytes. Returns false if the server has ended the connection, or does not receive.
    pub(crate) fn send(&self, bytes: &[u8]) -> bool {
        self.connection.try_send(bytes).is_ok()
    }

    /// Sends a request with these attachments, arguments and inline bytes.
    pub(crate) fn request(&mut self, method: &str, bulks: &[Bulk], rest: &[u8]) {
        let method = self.hello.methods.iter().find(|known| known.name == method).unwrap().id;
        let header = Header { method, flags: Flags::new(0, bulks.len()), ..Header::new(Kind::Request, self.next) };
        let table: Vec<u8> = bulks.iter().flat_map(|bulk| bulk.to_bytes()).collect();
        let mut bytes = Vec::new();
        write(&mut bytes, &header, &[], &[&table, rest]);
        self.connection.send(&bytes).unwrap();
        self.next += 2;
    }
}

/// Returns the size of this process's address space in bytes.
fn size() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// Runs in a child process, because other tests change the size of this process.
#[test]
fn child() {
    let Some(transport) = transport_of(ANNOUNCED) else { return };
    let options = options(transport);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let serving = runtime.block_on(async {
        let server = Server::new(StoreServer::new(Kept::default()));
        server.bind_on(&Endpoint::spawn(&options).unwrap(), &ADDRESS).await.unwrap()
    });
    let address = serving.local_addr().to_string();
    let channel = runtime.block_on(async {
        let endpoint = Endpoint::spawn(&options).unwrap();
        Channel::connect_on(&endpoint, &address).await.unwrap()
    });
    let client = StoreClient::over(channel).unwrap();
    let put = || client.put(Attachment::from(vec![3; 100_000]), 7, Attachment::from(&[7; 5][..]));
    assert_eq!(runtime.block_on(put()), Ok(100_000));
    let mut peer = Raw::connect(&options, &address);
    let before = size();
    for _ in 0..100 {
        let value = Bulk { kind: BulkKind::Pull, length: 1 << 30, address: 0, key: 0 };
        let mark = Bulk { kind: BulkKind::Inline, length: 5, ..value };
        peer.request("test.Store/put", &[value, mark], &[7; 6]);
    }
    // The server requests the bytes of some attachments, and gets none.
    let mut requested = 0;
    while requested < 5 {
        let received = peer.connection.recv_until(Some(Instant::now() + LONG)).unwrap().unwrap();
        let mut rest = &received[..];
        while !rest.is_empty() {
            let (frame, after) = Frame::split(rest).unwrap();
            assert!(matches!(frame.header.kind, Kind::Bulk | Kind::Ping | Kind::Credit), "{frame:?}");
            requested += u32::from(frame.header.kind == Kind::Bulk);
            rest = after;
        }
    }
    let grown = size().saturating_sub(before);
    // What the peer announced is 100 GiB. Threads and their heaps take a part of this.
    assert!(grown < 1 << 30, "the process has grown by {} MiB", grown >> 20);
    for _ in 0..20 {
        assert_eq!(runtime.block_on(async { within(put()).await }), Ok(100_000));
    }
    runtime.shutdown_timeout(Duration::from_secs(60));
}

#[test]
fn announced_attachments_reserve_no_registered_memory() {
    for (transport, devices) in [("Rdma", "soft0"), ("Rdma", "softiw0"), ("Tcp", "soft0")] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["hostile::child", "--exact", "--nocapture"]).env(ANNOUNCED, transport);
        let ran = command.env("SOFTRNIC_DEVICES", devices).output().unwrap();
        let text = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{transport} {devices}: {}: {text}", ran.status);
    }
}
