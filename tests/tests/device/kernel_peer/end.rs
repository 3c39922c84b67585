//! The two programs of a test: each is a copy of this test program on the device of one host.
#![expect(clippy::print_stdout, reason = "the test that started the program reads its output")]

use std::env;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::{BasicCompletionQueue, CompletionRecord, PollCompletions, WorkCompletionStatus};
use sideway::ibverbs::device::{DeviceInfo, TransportType};
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{BasicQueuePair, PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway::rdmacm::communication_manager::Identifier;
use sideway::rdmacm::{ConnectionParameter, Connector, Listener};
use sideway_tests::child::{self, Ended};
use sideway_tests::connections::LONG;
use sideway_tests::device;
use sideway_tests::hosts::Hosts;
use sideway_tests::loopback::{Give, Memory, Range};
use sideway_tests::programs::port;

use super::{LIMIT, Peer, Peers, connects, errors, messages};

/// The variable that passes the role, the part and the address of the listener to a program.
const ROLE: &str = "SIDEWAY_TEST_ROLE";
/// The capacity of each queue.
pub(super) const DEPTH: u32 = 128;
/// The number of the requests of [`End::meet`].
const MEET: u64 = 1 << 40;

/// Prints what softrnic logs.
struct Stderr;

impl log::Log for Stderr {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        if record.target().starts_with("softrnic") {
            println!("LOG {}", record.args());
        }
    }

    fn flush(&self) {}
}

/// One end of a connection.
pub(super) struct End {
    pub(super) qp: BasicQueuePair,
    pub(super) cq: BasicCompletionQueue,
    pub(super) pd: Arc<ProtectionDomain>,
    pub(super) context: Arc<DeviceContext>,
    /// The completions that were polled and not returned.
    found: Vec<CompletionRecord>,
    greeting: Option<Memory>,
}

impl End {
    pub(super) fn of(id: &Arc<Identifier>) -> Self {
        let context = id.get_device_context().expect("the identifier has a device");
        let pd = context.alloc_pd().expect("a domain can be created");
        let cq = context.create_cq_builder().setup_cqe(4 * DEPTH).build().expect("a queue can be created");
        let mut builder = pd.create_qp_builder();
        builder.setup_send_cq(&cq).setup_recv_cq(&cq).setup_max_send_wr(DEPTH).setup_max_recv_wr(DEPTH);
        let qp = id.create_qp(&builder).expect("a queue pair can be created");
        Self { qp, cq, pd, context, found: Vec::new(), greeting: None }
    }

    pub(super) fn receive(&mut self, number: u64, memory: &Memory, offset: usize, length: usize) {
        let mut batch = self.qp.start_post_recv();
        batch.construct_wr(number).give(Range::of(memory, offset, length));
        batch.post().unwrap_or_else(|error| panic!("{error}"));
    }

    /// Posts the receive for [`meet`](Self::meet), before the connection is set up.
    pub(super) fn expect_peer(&mut self) {
        let memory = Memory::new(&self.pd, 1, AccessFlags::LocalWrite);
        self.receive(MEET, &memory, 0, 0);
        self.greeting = Some(memory);
    }

    /// Exchanges messages, after which both sides are known to be established. Linux 6.1 crashes (`BUG` in iwcm.c:969) if
    /// a connection to siw ends before its kernel has handled the event of the establishment.
    pub(super) fn meet(&mut self, is_active: bool) {
        let memory = self.greeting.take().expect("the receive was posted");
        // The active side sends first: RFC 5044, section 7.
        if !is_active {
            self.complete_meeting(1);
        }
        let mut batch = self.qp.start_post_send();
        batch.construct_wr(MEET, WorkRequestFlags::Signaled).setup_send().give(Range::of(&memory, 0, 0));
        batch.post().unwrap_or_else(|error| panic!("{error}"));
        self.complete_meeting(if is_active { 2 } else { 1 });
    }

    fn complete_meeting(&mut self, requests: usize) {
        for _ in 0..requests {
            let mut records = self.completions_until(|record| record.wr_id == MEET);
            let meeting = records.pop().expect("the last record was found");
            // A request of the peer that was refused flushes the last message, which may not be acknowledged yet.
            let is_flushed = requests == 1 && meeting.status == WorkCompletionStatus::WorkRequestFlushedError;
            assert!(meeting.status == WorkCompletionStatus::Success || is_flushed, "{meeting:?}");
            // The peer may already have ended the connection, which flushes the other requests.
            self.found.splice(0..0, records);
        }
    }

    /// Polls until `is_done` holds for a completion. Returns the completions up to this one. Later ones are kept for the
    /// next call.
    #[track_caller]
    pub(super) fn completions_until(
        &mut self,
        mut is_done: impl FnMut(&CompletionRecord) -> bool,
    ) -> Vec<CompletionRecord> {
        let (until, mut checked) = (Instant::now() + LONG, 0);
        loop {
            if let Some(at) = self.found[checked..].iter().position(&mut is_done) {
                return self.found.drain(..=checked + at).collect();
            }
            checked = self.found.len();
            self.cq.poll_records(&mut self.found).unwrap_or_else(|error| panic!("{error}"));
            if self.found.len() == checked {
                assert!(Instant::now() < until, "after {:?}, nothing completes", self.found);
                std::thread::yield_now();
            }
        }
    }
}

pub(super) fn connector() -> Connector {
    let mut connector = Connector::new();
    connector.setup_timeout(LONG);
    connector
}

/// Whether an end has a device of softrnic.
pub(super) fn is_soft(end: &End) -> bool {
    end.context.name().starts_with("soft")
}

/// Whether an end has an iWARP device, of softrnic or of the kernel.
pub(super) fn is_iwarp(end: &End) -> bool {
    end.context.transport_type() == TransportType::IWarp
}

/// The parameters of both ends.
pub(super) fn parameters() -> ConnectionParameter {
    let mut parameter = ConnectionParameter::default();
    parameter.setup_initiator_depth(16).setup_responder_resources(16);
    parameter
}

/// Plays the role that the environment names.
#[test]
#[ignore = "is started by other tests"]
fn plays() {
    let Ok(role) = env::var(ROLE) else { return };
    // Registers the device, if it is softrnic's.
    device::name();
    static LOGGER: Stderr = Stderr;
    let _ = log::set_logger(&LOGGER);
    log::set_max_level(log::LevelFilter::Debug);
    let words: Vec<&str> = role.split(' ').collect();
    match words[..] {
        ["listen", part, address] => {
            let listener = Listener::bind(address).unwrap_or_else(|error| panic!("{error}"));
            match part.parse() {
                Ok(count) => messages::receive_all(&listener, count),
                Err(_) if part == "connects" => connects::accept_all(&listener, connects::COUNT),
                Err(_) => errors::suffer_all(&listener, part),
            }
        }
        ["connect", part, address] => match part.parse() {
            Ok(count) => messages::send_all(address, count),
            Err(_) if part == "connects" => connects::connect_all(address, connects::COUNT),
            Err(_) => errors::make_all(address, part),
        },
        _ => panic!("unknown role: {role}"),
    }
    println!("PLAYED");
}

impl Peers {
    /// Sends messages of all kinds and sizes in both roles; each role sends half of them.
    #[track_caller]
    pub(crate) fn exchange(&self, count: usize, limit: Duration) {
        for connecting in [Peer::Soft, Peer::Kernel] {
            self.perform(connecting, &(count / 2).to_string(), limit);
        }
    }

    /// Runs a part: `connects`, a number of messages, or names of [`errors`]. `connecting` connects to the other peer. Returns the output of the listening and of the connecting
    /// program.
    #[track_caller]
    pub(crate) fn perform(&self, connecting: Peer, part: &str, limit: Duration) -> [Ended; 2] {
        let port = port();
        let listening = if matches!(connecting, Peer::Soft) { Peer::Kernel } else { Peer::Soft };
        let play = |peer, role: &str| -> Command {
            let mut command = self.command(peer, env::current_exe().expect("this program has a path"));
            command.args([
                "--exact",
                "kernel_peer::end::plays",
                "--include-ignored",
                "--nocapture",
                "--test-threads=1",
            ]);
            command.env(device::TEST_DEVICE, self.device(peer));
            command.env(ROLE, format!("{role} {part} {}:{port}", Hosts::ADDRESSES[listening as usize]));
            command
        };
        let ended = child::run_both(play(listening, "listen"), play(connecting, "connect"), port, limit.max(LIMIT));
        let [listened, connected] = &ended;
        let have_played = ended.iter().all(|one| one.status.success() && one.output.contains("PLAYED"));
        assert!(have_played, "{connecting:?} connects\n{}\n{}", listened.output, connected.output);
        ended
    }
}
