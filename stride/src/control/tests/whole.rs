//! Tests of complete measurements in memory.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::Result;

use super::*;
use crate::endpoint::fake::Stage;
use crate::endpoint::{Endpoint, EndpointFactory, Path, PeerInfo, PortInfo, Role, StepProgress};
use crate::plan::{
    Direction, LONGEST, Measure, Memory, Operation, PortSelector, RunLength, Semantics, SideConfig, Transport,
};
use crate::stats::{Figures, Interval, Seen};

#[test]
fn every_operation_runs_with_every_size() {
    for operation in [Operation::Write, Operation::WriteWithImmediate, Operation::Read, Operation::Send] {
        let request = request(|plan| {
            (plan.workload.operation, plan.workload.sizes, plan.queues.queue_pairs) = (operation, vec![2, 64, 4096], 3)
        });
        let outcome = loopback(&Fake::default(), &request, LONG, &mut ()).unwrap();
        assert_eq!(outcome.steps.iter().map(|step| step.size).collect::<Vec<_>>(), [2, 64, 4096]);
        assert_eq!((outcome.path.client_gid, outcome.path.server_gid, outcome.path.mtu), (Some(3), Some(3), 4096));
        for step in outcome.steps {
            let Some(Figures::Bandwidth(bandwidth)) = step.client else { panic!("{step:?}") };
            assert_eq!(bandwidth.messages, 15000);
            assert_eq!(step.server.is_some(), operation.takes_receive());
            assert!(step.is_whole);
        }
    }
}

#[test]
fn observer_receives_intervals() {
    #[derive(Default)]
    struct Observed(Vec<(u64, Interval)>);
    impl Watch for Observed {
        fn interval(&mut self, size: u64, interval: &Interval) {
            self.0.push((size, *interval));
        }
    }
    let mut observed = Observed::default();
    let mut request = request(|plan| plan.workload.sizes = vec![2, 125_000]);
    loopback(&Fake::default(), &request, LONG, &mut observed).unwrap();
    let sizes: Vec<_> = observed.0.iter().map(|(size, _)| *size).collect();
    assert_eq!(sizes, [2, 125_000]);
    assert_eq!(observed.0[1].1.rates(125_000).map(|rates| rates.gigabits_per_second), Some(100.0));
    // If only the server sends, the client cannot measure, so the server reports the intervals.
    (request.plan.workload.direction, request.plan.workload.sizes) = (Direction::Reversed, vec![2, 3]);
    let mut observed = Observed::default();
    loopback(&Fake::default(), &request, LONG, &mut observed).unwrap();
    assert_eq!(observed.0.iter().map(|(size, _)| *size).collect::<Vec<_>>(), [2, 3]);
    request.plan.workload.direction = Direction::Forward;
    request.plan.workload.measure = Measure::Latency(Semantics::Oneway);
    (request.plan.queues.tx_depth, request.plan.workload.sizes) = (1, vec![2]);
    let mut observed = Observed::default();
    loopback(&Fake::default(), &request, LONG, &mut observed).unwrap();
    assert!(
        matches!(observed.0[..], [(2, Interval { seen: Seen::Latency { samples: 5000, .. }, .. })]),
        "{:?}",
        observed.0
    );
}

#[test]
fn server_gpu_disables_default_inline() {
    #[derive(Default)]
    struct Notes(Vec<String>);
    impl Watch for Notes {
        fn note(&mut self, text: &str) {
            self.0.push(text.to_owned());
        }
    }
    let config = SideConfig { memory: Some(Memory::Cuda("0".to_owned())), ..SideConfig::default() };
    let of = |given: &[&str]| {
        let (ours, server) = UnixStream::pair().unwrap();
        let host = Host { config: config.clone(), ..Host::default() };
        let thread = thread::spawn(move || {
            let (connection, _) = Connection::handshake(server, Role::Server, LONG)?;
            serve_one(connection, &Fake::default(), &host, &mut |_| ())
        });
        let mut request = request(|plan| {
            (plan.workload.operation, plan.workload.measure) = (Operation::Send, Measure::Latency(Semantics::Oneway));
            (plan.queues.tx_depth, plan.workload.sizes, plan.queues.inline) = (1, vec![64], Some(236));
        });
        request.given = given.iter().map(|option| (*option).to_owned()).collect();
        let (connection, _) = Connection::handshake(ours, Role::Client, LONG).unwrap();
        let mut notes = Notes::default();
        let done = measure(connection, Near::default(), &Fake::default(), &request, &mut notes);
        let _ = thread.join().unwrap();
        (done.map(|outcome| outcome.server.inline).map_err(|failure| failure.to_string()), notes.0)
    };
    let (inline, notes) = of(&[]);
    assert_eq!(inline, Ok(Some(0)));
    assert!(
        notes.iter().any(|note| note.starts_with("the server's --use-cuda disables the default of 236 bytes")),
        "{notes:?}"
    );
    let (refused, _) = of(&["--inline"]);
    assert!(refused.unwrap_err().contains("--inline 236 conflicts with --use-cuda"));
}

#[test]
fn ports_connect_in_order() {
    let request = request(|plan| {
        (plan.queues.queue_pairs, plan.queues.threads) = (4, 2);
        let spot = |port, gid_index| PortSelector { device: Some("mlx4_0".to_owned()), port: Some(port), gid_index };
        plan.placement.client = SideConfig::default().at(vec![spot(1, None), spot(2, Some(1))]);
        plan.placement.server = SideConfig::default().at(vec![spot(2, Some(2)), spot(1, None)]);
    });
    let outcome = loopback(&Fake::default(), &request, LONG, &mut ()).unwrap();
    let ports = |port_info: &PortInfo| port_info.all().map(|port| port.port).collect::<Vec<_>>();
    assert_eq!([ports(&outcome.client), ports(&outcome.server)], [[1, 2], [2, 1]]);
    let gids: Vec<_> = outcome.path.all().map(|path| (path.client_gid, path.server_gid)).collect();
    assert_eq!(gids, [(Some(2), Some(2)), (Some(1), Some(1))]);
    assert!(outcome.server.all().all(|port| port.inline == Some(0)));
    let Some(Figures::Bandwidth(bandwidth)) = &outcome.steps[0].client else { panic!("{:?}", outcome.steps) };
    assert_eq!((bandwidth.messages, bandwidth.ports.len()), (20_000, 2));
}

#[test]
fn many_queue_pairs_connect() {
    let request = request(|plan| plan.queues.queue_pairs = 4096);
    assert_eq!(loopback(&Fake::default(), &request, LONG, &mut ()).unwrap().steps.len(), 1);
}

#[test]
fn latency_and_datagram_tests_run() {
    let request = request(|plan| {
        (plan.workload.operation, plan.attributes.transport, plan.workload.sizes) =
            (Operation::Send, Transport::Ud, vec![1024]);
        (plan.workload.measure, plan.queues.tx_depth) = (Measure::Latency(Semantics::Rtt), 1);
    });
    let outcome = loopback(&Fake::default(), &request, LONG, &mut ()).unwrap();
    assert!(matches!(outcome.steps[0].client, Some(Figures::Latency(_))));
}

#[test]
fn each_step_has_counters_of_both_sides() {
    let counted = |names: &[&str]| {
        let request = request(|plan| {
            (plan.workload.sizes, plan.workload.is_validated) = (vec![2, 64], true);
            plan.sampling.counters = names.iter().map(|name| (*name).to_owned()).collect();
        });
        loopback(&Fake::default(), &request, LONG, &mut ()).map(|outcome| outcome.steps)
    };
    assert!(counted(&[]).unwrap().iter().all(|step| step.counters.is_none()));
    for (names, expected) in [
        (&["all"][..], "counters/port_rcv_data +23, counters/port_xmit_data +24"),
        (&["out_of_buffer", "counters/port_rcv_data"], "counters/port_rcv_data +23, hw_counters/out_of_buffer +0"),
    ] {
        let steps = counted(names).unwrap();
        assert_eq!(steps.len(), 2);
        for step in steps {
            let both = step.counters.unwrap();
            for side in [both.client, both.server] {
                assert_eq!(side.unwrap().to_string(), expected);
            }
        }
    }
    let error = counted(&["symbol_error"]).unwrap_err().to_string();
    assert!(
        error.starts_with("--counters symbol_error: no such counter on port 1 of fake0; it has counters/"),
        "{error}"
    );
}

/// Counts progress reports, and ends the test at the fourth one.
struct Soon(u32);

impl Watch for Soon {
    fn progress(&mut self, _size: u64, _done: f64) -> bool {
        self.0 += 1;
        self.0 < 4
    }
}

#[test]
fn endless_step_is_complete_when_stopped() {
    for (operation, direction) in [
        (Operation::Write, Direction::Forward),
        (Operation::Write, Direction::Reversed),
        (Operation::Send, Direction::Both),
    ] {
        let mut request = request(|plan| {
            (plan.workload.operation, plan.workload.direction) = (operation, direction);
            plan.workload.amount = RunLength::Time { time: LONGEST, warm_up: Duration::ZERO };
            plan.workload.is_endless = true;
        });
        let outcome = loopback(&Fake::default(), &request, LONG, &mut Soon(0)).unwrap();
        let [step] = &outcome.steps[..] else { panic!("{:?}", outcome.steps) };
        assert!(step.is_whole && (step.client.is_some() || step.server.is_some()), "{step:?}");
        // The same observer also stops a test that has a planned end, before that end.
        (request.plan.workload.is_endless, request.plan.workload.amount) =
            (false, RunLength::Time { time: LONG, warm_up: Duration::ZERO });
        let fake = Fake { waits: Some(Role::Client), ..Fake::default() };
        let outcome = loopback(&fake, &request, LONG, &mut Soon(0)).unwrap();
        assert!(!outcome.steps[0].is_whole);
    }
}

#[test]
fn every_transport_runs() {
    for transport in [Transport::Rc, Transport::Uc, Transport::Xrc, Transport::Dc, Transport::Srd] {
        let outcome = loopback(&Fake::default(), &request(|plan| plan.attributes.transport = transport), LONG, &mut ());
        assert_eq!(outcome.unwrap().steps.len(), 1, "{transport}");
    }
}

#[test]
fn datagram_sweep_ends_at_the_path_mtu() {
    let fake = Fake { mtu: Some(1024), ..Fake::default() };
    let mut request = request(|plan| {
        (plan.workload.operation, plan.attributes.transport, plan.workload.sizes) =
            (Operation::Send, Transport::Ud, vec![512, 1024, 2048, 4096]);
    });
    struct Remarks(usize);
    impl Watch for Remarks {
        fn remark(&mut self, text: &str) {
            assert!(text.contains("at most 1024 bytes on this path; larger sizes are skipped"), "{text}");
            self.0 += 1;
        }
    }
    let mut remarks = Remarks(0);
    let outcome = loopback(&fake, &request, LONG, &mut remarks).unwrap();
    assert_eq!(outcome.steps.iter().map(|step| step.size).collect::<Vec<_>>(), [512, 1024]);
    assert_eq!(remarks.0, 1);
    // A size that the user gave is not changed.
    request.given = ["--max-msg-size".to_owned()].into_iter().collect();
    let failure = loopback(&fake, &request, LONG, &mut ()).unwrap_err().to_string();
    assert!(failure.contains("the largest message has 4096; give --max-msg-size 1024 or less"), "{failure}");
}

#[test]
fn sweep_ends_at_the_longest_supported_message() {
    let fake = Fake { longest: [Some(2048), Some(1024)], ..Fake::default() };
    let mut request = request(|plan| {
        (plan.workload.operation, plan.attributes.transport, plan.workload.sizes) =
            (Operation::Send, Transport::Srd, vec![512, 1024, 2048, 4096]);
    });
    struct Remarks(Vec<String>);
    impl Watch for Remarks {
        fn remark(&mut self, text: &str) {
            self.0.push(text.to_owned());
        }
    }
    let mut remarks = Remarks(Vec::new());
    let outcome = loopback(&fake, &request, LONG, &mut remarks).unwrap();
    assert_eq!(outcome.steps.iter().map(|step| step.size).collect::<Vec<_>>(), [512, 1024]);
    assert_eq!(remarks.0, ["a message over SRD holds at most 1024 bytes on this path; larger sizes are skipped"]);
    request.given = ["--msg-size".to_owned()].into_iter().collect();
    let failure = loopback(&fake, &request, LONG, &mut ()).unwrap_err().to_string();
    assert!(failure.contains("has 4096; give --msg-size 1024 or less"), "{failure}");
    // Over other transports than SRD, messages may be longer.
    request.plan.attributes.transport = Transport::Rc;
    assert_eq!(loopback(&fake, &request, LONG, &mut ()).unwrap().steps.len(), 4);
}

#[test]
fn failure_names_the_side() {
    for stage in [Stage::Open, Stage::MakeEnds, Stage::Connect, Stage::Prepare, Stage::Run] {
        for role in [Role::Client, Role::Server] {
            let fake = Fake { fails: Some((role, stage)), waits: None, ..Fake::default() };
            let failure = loopback(&fake, &request(|_| ()), LONG, &mut ()).unwrap_err();
            let is_rdma = !matches!(stage, Stage::Open | Stage::MakeEnds);
            assert_eq!(failure.cause(), if is_rdma { Cause::Rdma } else { Cause::Other }, "{stage:?} {role:?}");
            let prefix = if role == Role::Server { "the server: " } else { "" };
            assert_eq!(failure.to_string(), format!("{prefix}fake0 fails at {stage:?}, as configured"));
        }
    }
}

#[test]
fn failing_side_ends_the_peers_run() {
    let (client, server) = (Role::Client, Role::Server);
    for (fails, waits) in [(client, server), (server, client)] {
        let fake = Fake { fails: Some((fails, Stage::Run)), waits: Some(waits), ..Fake::default() };
        let failure = loopback(&fake, &request(|_| ()), LONG, &mut ()).unwrap_err();
        assert_eq!(failure.cause(), Cause::Rdma);
        assert!(failure.to_string().contains("fails at Run"), "{failure}");
    }
}

#[test]
fn passive_side_ends_with_its_peer() {
    let fake = Fake { fails: None, waits: Some(Role::Server), ..Fake::default() };
    let request = request(|plan| plan.workload.sizes = vec![1, 2, 3]);
    assert_eq!(loopback(&fake, &request, LONG, &mut ()).unwrap().steps.len(), 3);
}

#[test]
fn passive_client_ends_with_the_server() {
    let fake = Fake { waits: Some(Role::Client), ..Fake::default() };
    let request = request(|plan| (plan.workload.direction, plan.workload.sizes) = (Direction::Reversed, vec![1, 2, 3]));
    let outcome = loopback(&fake, &request, LONG, &mut ()).unwrap();
    assert_eq!(outcome.steps.len(), 3);
    for step in outcome.steps {
        assert!(step.client.is_none() && matches!(step.server, Some(Figures::Bandwidth(_))), "{step:?}");
    }
}

#[test]
fn sending_server_completes_its_messages() {
    let fake = Fake { late: Some(Role::Server), ..Fake::default() };
    let time = Duration::from_secs(1);
    for amount in [RunLength::Time { time, warm_up: time / 10 }, RunLength::Messages { count: 5000, warm_up: 0 }] {
        let request = request(|plan| (plan.workload.direction, plan.workload.amount) = (Direction::Both, amount));
        let step = loopback(&fake, &request, LONG, &mut ()).unwrap().steps.remove(0);
        let of = |figures: &Option<Figures>| match figures {
            Some(Figures::Bandwidth(bandwidth)) => (bandwidth.messages, bandwidth.seconds),
            other => panic!("{other:?}"),
        };
        assert!(step.is_whole);
        assert_eq!(of(&step.server), of(&step.client), "{amount:?}");
    }
}

/// Opens endpoints that log their calls. The endpoints wait for late messages for longer than the shortest time-out.
#[derive(Default)]
struct Waiting {
    fake: Fake,
    time: Duration,
    log: Arc<Mutex<Vec<(Role, &'static str)>>>,
}

struct WaitingEndpoint(Box<dyn Endpoint>, Role, Duration, Arc<Mutex<Vec<(Role, &'static str)>>>);

impl EndpointFactory for Waiting {
    fn open(&self, plan: &Plan, config: &SideConfig, role: Role) -> Result<Box<dyn Endpoint>> {
        Ok(Box::new(WaitingEndpoint(self.fake.open(plan, config, role)?, role, self.time, self.log.clone())))
    }
}

impl Endpoint for WaitingEndpoint {
    fn port_info(&self) -> &PortInfo {
        self.0.port_info()
    }

    fn create_queue_pairs(&mut self, path: &Path) -> Result<PeerInfo> {
        self.0.create_queue_pairs(path)
    }

    fn connect(&mut self, path: &Path, theirs: &PeerInfo) -> Result<()> {
        self.0.connect(path, theirs)
    }

    fn prepare(&mut self, size: u64) -> Result<()> {
        self.0.prepare(size)
    }

    fn run(
        &mut self,
        size: u64,
        readable_fd: Option<BorrowedFd<'_>>,
        report: &mut dyn FnMut(StepProgress<'_>) -> bool,
    ) -> Result<Option<Figures>> {
        let figures = self.0.run(size, readable_fd, report);
        self.3.lock().unwrap().push((self.1, "has run"));
        figures
    }

    fn settle(
        &mut self,
        _: u64,
        figures: Option<Figures>,
        was_cut: bool,
        report: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Figures>> {
        self.3.lock().unwrap().push((self.1, if was_cut { "looks" } else { "waits" }));
        let end = Instant::now() + self.2;
        while Instant::now() < end && report() {
            thread::sleep(Duration::from_millis(20));
        }
        Ok(figures)
    }
}

#[test]
fn late_messages_are_awaited_after_both_sides_have_sent() {
    let unreliable = |change: fn(&mut Plan)| {
        request(|plan| {
            (plan.attributes.transport, plan.workload.sizes) = (Transport::Uc, vec![2, 3]);
            change(plan);
        })
    };
    for late in [Role::Client, Role::Server] {
        let factory = Waiting { fake: Fake { late: Some(late), ..Fake::default() }, ..Waiting::default() };
        loopback(&factory, &unreliable(|plan| plan.workload.direction = Direction::Both), LONG, &mut ()).unwrap();
        let log = factory.log.lock().unwrap();
        for step in log.chunks(4) {
            assert!(step[..2].iter().all(|(_, what)| *what == "has run"), "{late:?}: {log:?}");
            assert!(step[2..].iter().all(|(_, what)| *what == "waits"), "{late:?}: {log:?}");
        }
    }
    // The peer must not treat the side that waits as hung.
    let short = LEAST_TIMEOUT;
    for change in [
        |plan: &mut Plan| plan.workload.direction = Direction::Both,
        |plan: &mut Plan| plan.workload.direction = Direction::Reversed,
    ] {
        let factory = Waiting { time: short * 3 / 2, ..Waiting::default() };
        assert_eq!(loopback(&factory, &unreliable(change), short, &mut ()).unwrap().steps.len(), 2);
    }
}

#[test]
fn late_messages_are_not_awaited_after_a_cut() {
    struct Impatient;
    impl Watch for Impatient {
        fn progress(&mut self, _: u64, done: f64) -> bool {
            done == 0.0
        }
    }
    for is_endless in [false, true] {
        let fake = Fake { waits: Some(Role::Server), ..Fake::default() };
        let factory = Waiting { fake, ..Waiting::default() };
        let request = request(|plan| {
            (plan.attributes.transport, plan.workload.direction) = (Transport::Uc, Direction::Both);
            plan.workload.is_endless = is_endless;
            plan.workload.amount = RunLength::Time { time: LONG, warm_up: Duration::ZERO };
        });
        loopback(&factory, &request, LONG, &mut Impatient).unwrap();
        let log = factory.log.lock().unwrap();
        assert_eq!(log.iter().filter(|(_, what)| *what == "looks").count(), 2, "{log:?}");
    }
}

#[test]
fn observer_can_end_a_step() {
    struct Impatient(Vec<u64>);
    impl Watch for Impatient {
        fn progress(&mut self, size: u64, done: f64) -> bool {
            size < 2 || done == 0.0
        }

        fn step(&mut self, step: &Step) {
            self.0.push(step.size);
        }
    }
    for waits in [None, Some(Role::Client), Some(Role::Server)] {
        let request =
            request(|plan| plan.workload.sizes = if waits == Some(Role::Client) { vec![2, 3] } else { vec![1, 2, 3] });
        let mut watch = Impatient(Vec::new());
        let outcome = loopback(&Fake { waits, ..Fake::default() }, &request, LONG, &mut watch).unwrap();
        assert_eq!(watch.0.last(), Some(&2));
        assert!(outcome.steps.last().is_some_and(|step| !step.is_whole));
    }
}

#[test]
fn observer_can_end_the_test_between_steps() {
    struct Between;
    impl Watch for Between {
        fn progress(&mut self, size: u64, _: f64) -> bool {
            size < 2
        }
    }
    let request = request(|plan| plan.workload.sizes = vec![1, 2, 3]);
    let outcome = loopback(&Fake::default(), &request, LONG, &mut Between).unwrap();
    assert_eq!(outcome.steps.iter().map(|step| (step.size, step.is_whole)).collect::<Vec<_>>(), [(1, true)]);
}

#[test]
fn impossible_plan_is_rejected_by_the_client() {
    let failure = loopback(&Fake::default(), &request(|plan| plan.queues.threads = 2), LONG, &mut ()).unwrap_err();
    assert!(failure.to_string().starts_with("--threads 2"), "{failure}");
    let request =
        request(|plan| (plan.placement.client.gid_index, plan.placement.server.gid_index) = (Some(0), Some(3)));
    let failure = loopback(&Fake::default(), &request, LONG, &mut ()).unwrap_err();
    assert!(failure.to_string().starts_with("no GIDs of the client's fake0"), "{failure}");
}
