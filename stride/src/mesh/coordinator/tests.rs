use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, Ipv4Addr};

use fastrand::Rng;

use super::results::MAX_TEXT;
use super::*;
use crate::mesh::message::Test;
use crate::mesh::schedule::{Mode, rounds};
use crate::plan::Measure;
use crate::report::sample;

fn milliseconds(random: &mut Rng, limit: u64) -> Duration {
    Duration::from_millis(1 + random.u64(..limit))
}

const JOIN: Duration = Duration::from_secs(60);
const SILENCE: Duration = Duration::from_secs(40);

fn settings(ranks: Rank, modes: &[Mode]) -> Settings {
    Settings {
        ranks,
        rails: 1,
        job: "job".to_owned(),
        rounds: rounds(ranks, 1, modes, None),
        sizes: vec![64],
        measure: Measure::Bandwidth,
        is_from_server: false,
        test: Test::default(),
        join: JOIN,
        silence: SILENCE,
    }
}

fn addresses() -> Addresses {
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    Addresses { peer: local, local }
}

fn join(rank: Rank, size: Rank) -> Join {
    Join { job: "job".to_owned(), rank, size, host: format!("h{rank}"), test: Test::default() }
}

/// How a simulated rank behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Good,
    /// Disconnects at this time.
    Dies(Duration),
    /// Does not reply after this time, although its connection remains.
    Hangs(Duration),
    /// Joins after the time limit.
    Late,
    /// Sends messages that it should not send.
    Breaks(Duration),
    /// Never joins.
    Absent,
}

/// What happens in a simulated mesh.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Join(Rank),
    Disconnect(Rank),
    Listening(Rank, u64),
    Alive(Rank, u64),
    Ended(Rank, u64, bool),
    Break(Rank),
}

struct Simulation {
    random: Rng,
    kinds: Vec<Kind>,
    events: BinaryHeap<Reverse<(Duration, Event)>>,
    /// The tests that each rank takes part in.
    running: Vec<BTreeSet<u64>>,
    /// The receiver of each test that has begun.
    servers: std::collections::HashMap<u64, Rank>,
    is_quiet: bool,
}

impl Simulation {
    fn new(seed: u64, kinds: Vec<Kind>) -> Self {
        let ranks = kinds.len();
        let random = Rng::with_seed(seed);
        Self {
            random,
            kinds,
            events: BinaryHeap::new(),
            running: vec![BTreeSet::new(); ranks],
            servers: [].into(),
            is_quiet: true,
        }
    }

    fn push(&mut self, at: Duration, event: Event) {
        self.events.push(Reverse((at, event)));
    }

    /// Whether the rank replies at this time.
    fn replies(&self, rank: Rank, now: Duration) -> bool {
        match self.kinds[rank as usize] {
            Kind::Dies(at) | Kind::Hangs(at) => now < at,
            _ => true,
        }
    }

    fn order(&mut self, rank: Rank, order: &Order, now: Duration) {
        let soon = now + milliseconds(&mut self.random, 20);
        match *order {
            Order::Serve { test, .. } => {
                if self.is_quiet {
                    self.running[rank as usize].retain(|other| *other >= test);
                }
                self.running[rank as usize].insert(test);
                self.servers.insert(test, rank);
                self.push(soon, Event::Listening(rank, test));
            }
            Order::Measure { test, .. } => {
                let running = &mut self.running[rank as usize];
                running.insert(test);
                assert!(!self.is_quiet || running.len() == 1, "rank {rank} has the tests {running:?}");
                let server = self.servers[&test];
                let takes = Duration::from_millis(200) + milliseconds(&mut self.random, 1000);
                let is_good = self.replies(server, now + takes);
                let takes = if is_good { takes } else { takes + Duration::from_secs(30) };
                self.push(now + takes / 2, Event::Alive(rank, test));
                self.push(now + takes, Event::Ended(rank, test, is_good));
            }
            Order::Welcome | Order::Reject { .. } | Order::Stop { .. } | Order::End => {}
        }
    }

    /// Runs the mesh to its end. Returns its results, and the time that it took.
    fn run(&mut self, settings: Settings) -> (Results, Duration) {
        let ranks = settings.ranks;
        let mut coordinator = Coordinator::new(settings);
        for (kind, rank) in self.kinds.clone().into_iter().zip(0..) {
            let join = milliseconds(&mut self.random, 2000);
            match kind {
                Kind::Absent => continue,
                Kind::Late => self.push(JOIN + join, Event::Join(rank)),
                _ => self.push(join, Event::Join(rank)),
            }
            match kind {
                Kind::Dies(at) => self.push(at, Event::Disconnect(rank)),
                Kind::Breaks(at) => self.push(at, Event::Break(rank)),
                _ => {}
            }
        }
        let mut now = Duration::ZERO;
        for step in 0.. {
            assert!(step < 3_000_000, "the mesh does not end");
            while let Some(action) = coordinator.action() {
                if let Action::Send(rank, order) = action {
                    self.order(rank, &order, now);
                }
            }
            if coordinator.has_ended() {
                return (coordinator.into_results(), now);
            }
            let next = self.events.peek().map(|Reverse((at, _))| *at);
            match coordinator.deadline() {
                Some(deadline) if next.is_none_or(|next| deadline <= next) => {
                    now = now.max(deadline);
                    coordinator.tick(now);
                }
                _ => {
                    let Some(Reverse((at, event))) = self.events.pop() else { panic!("nothing happens") };
                    now = now.max(at);
                    self.happen(&mut coordinator, ranks, event, now);
                }
            }
        }
        unreachable!()
    }

    fn happen(&mut self, coordinator: &mut Coordinator, ranks: Rank, event: Event, now: Duration) {
        let mut report = |rank: Rank, report: Report| {
            if self.replies(rank, now) {
                coordinator.report(rank, report, now);
            }
        };
        match event {
            Event::Join(rank) => drop(coordinator.join(join(rank, ranks), addresses(), now)),
            Event::Disconnect(rank) => coordinator.lose(rank, "it disconnected".to_owned(), now),
            Event::Listening(rank, test) => report(rank, Report::Listening { test, port: 7 }),
            Event::Alive(rank, test) => report(rank, Report::Alive { test }),
            Event::Break(rank) => report(rank, Report::Alive { test: u64::MAX }),
            Event::Ended(rank, test, is_good) => {
                self.running[rank as usize].remove(&test);
                let server = self.servers[&test];
                self.running[server as usize].remove(&test);
                let rows = if is_good { vec![sample::bandwidth_row(64, 1000)] } else { Vec::new() };
                let trouble = (!is_good)
                    .then(|| Trouble { text: "the server disconnected".to_owned(), kind: super::Kind::Contact });
                if self.replies(rank, now) {
                    let ended = Ended { test, seconds: 1.0, ports: None, rows, warnings: Vec::new(), trouble };
                    coordinator.report(rank, Report::Ended(Box::new(ended)), now);
                }
            }
        }
    }
}

#[test]
fn large_mesh_with_bad_ranks_ends_with_a_cell_per_pair() {
    for seed in 1..=4 {
        let ranks = if seed % 2 == 0 { 256 } else { 255 };
        let mut random = Rng::with_seed(seed);
        let mut kinds = vec![Kind::Good; ranks as usize];
        for _ in 0..24 {
            let at = Duration::from_secs(2) + milliseconds(&mut random, 600_000);
            let kind = match random.u64(..5) {
                0 => Kind::Dies(at),
                1 => Kind::Hangs(at),
                2 => Kind::Late,
                3 => Kind::Breaks(at),
                _ => Kind::Absent,
            };
            kinds[random.usize(..ranks as usize)] = kind;
        }
        let bad: Vec<_> = kinds.iter().map(|kind| *kind != Kind::Good).collect();
        let (results, time) = Simulation::new(seed, kinds).run(settings(ranks, &[Mode::Quiet]));
        assert_eq!(results.error, None);
        let pairs: BTreeSet<_> = results.cells.iter().map(|cell| (cell.from, cell.to)).collect();
        assert_eq!((results.cells.len(), pairs.len()), ((ranks * (ranks - 1)) as usize, results.cells.len()));
        for cell in &results.cells {
            let is_bad = bad[cell.from as usize] || bad[cell.to as usize];
            assert!(is_bad || cell.error.is_none(), "{cell:?}");
            assert_eq!(cell.error.is_some(), cell.rows.is_empty(), "{cell:?}");
        }
        for (rank, is_bad) in results.ranks.iter().zip(&bad) {
            assert!(*is_bad || rank.error.is_none(), "{rank:?}");
        }
        // A hung rank delays the mesh once, by its silence.
        let rounds = 2 * 255;
        assert!(time < JOIN + Duration::from_secs(2) * rounds + 24 * 2 * SILENCE, "{time:?}");
    }
}

#[test]
fn all_modes_run_to_their_end() {
    for ranks in [2, 3, 8] {
        let modes = [Mode::Quiet, Mode::Busy, Mode::Incast, Mode::Outcast];
        let mut simulation = Simulation::new(3, vec![Kind::Good; ranks as usize]);
        simulation.is_quiet = false;
        let (results, _) = simulation.run(settings(ranks, &modes));
        assert!(results.cells.iter().all(|cell| cell.error.is_none()));
        assert_eq!(results.cells.len(), (4 * ranks * (ranks - 1)) as usize);
        assert!(results.troubles.is_empty() && results.error.is_none());
    }
}

#[test]
fn mesh_without_ranks_ends_with_an_error() {
    let mut kinds = vec![Kind::Absent; 4];
    kinds[0] = Kind::Good;
    let (results, time) = Simulation::new(1, kinds).run(settings(4, &[Mode::Quiet]));
    let error = results.error.unwrap();
    assert!(error.contains("1 of 4 ranks joined") && error.contains("rank 1, 2, 3"), "{error}");
    assert_eq!((time, results.cells.len()), (JOIN, 0));
}

/// Returns a mesh of two ranks whose first test has begun, after its orders.
fn begun() -> Coordinator {
    let mut new = Coordinator::new(settings(2, &[Mode::Quiet]));
    for rank in 0..2 {
        new.join(join(rank, 2), addresses(), Duration::ZERO).unwrap();
    }
    while new.action().is_some() {}
    new
}

#[test]
fn unsuitable_ranks_are_rejected() {
    let mut new = Coordinator::new(settings(2, &[Mode::Quiet]));
    let mut reject = |join: Join| match new.join(join, addresses(), Duration::ZERO) {
        Err(Order::Reject { why, is_final }) => (why, is_final),
        other => panic!("{other:?}"),
    };
    assert!(
        matches!(reject(Join { job: "other".to_owned(), ..join(0, 2) }), (why, false) if why.contains("another job"))
    );
    assert!(matches!(reject(join(0, 3)), (why, true) if why.contains("counts 3 ranks")));
    assert!(matches!(reject(join(2, 2)), (why, true) if why.contains("not below")));
    let other = |version: &str, digest| Test { version: version.to_owned(), digest };
    assert!(
        matches!(reject(Join { test: other("9", 0), ..join(0, 2) }), (why, true) if why.contains("has stride-perf 9"))
    );
    assert!(matches!(reject(Join { test: other("", 1), ..join(0, 2) }), (why, true) if why.contains("another test")));
    new.join(join(1, 2), addresses(), Duration::ZERO).unwrap();
    assert!(matches!(new.join(join(1, 2), addresses(), Duration::ZERO), Err(Order::Reject { is_final: true, .. })));
}

#[test]
fn rank_that_is_lost_before_the_first_round_can_join_again() {
    let mut new = Coordinator::new(settings(2, &[Mode::Quiet]));
    new.join(join(1, 2), addresses(), Duration::ZERO).unwrap();
    new.lose(1, "it disconnected".to_owned(), Duration::ZERO);
    new.join(join(1, 2), addresses(), Duration::ZERO).unwrap();
    new.lose(1, "it disconnected".to_owned(), Duration::ZERO);
    new.join(join(0, 2), addresses(), Duration::ZERO).unwrap();
    assert!(matches!(new.phase, Phase::Joining));
    new.join(join(1, 2), addresses(), Duration::ZERO).unwrap();
    assert!(matches!(new.phase, Phase::Round { .. }));
}

#[test]
fn sender_is_the_server_if_data_flows_to_the_client() {
    let mut new = Coordinator::new(Settings { is_from_server: true, ..settings(2, &[Mode::Quiet]) });
    let (from, to) = new.settings.rounds[0].pairs[0];
    for rank in 0..2 {
        new.join(join(rank, 2), addresses(), Duration::ZERO).unwrap();
    }
    new.report(from, Report::Listening { test: 0, port: 7 }, Duration::ZERO);
    let ports = Some(["client".to_owned(), "server".to_owned()]);
    let rows = vec![sample::bandwidth_row(64, 10)];
    let ended = Ended { test: 0, seconds: 1.0, ports, rows, warnings: Vec::new(), trouble: None };
    new.report(to, Report::Ended(Box::new(ended)), Duration::ZERO);
    let results = new.into_results();
    assert_eq!((results.cells[0].from, results.cells[0].to), (from, to));
    assert_eq!(results.ranks[from as usize].ports, [Some("server".to_owned())]);
}

/// Returns the tests whose servers the actions of a mesh stop.
fn stopped(new: &mut Coordinator) -> Vec<(Rank, u64)> {
    std::iter::from_fn(|| new.action())
        .filter_map(|action| match action {
            Action::Send(rank, Order::Stop { test }) => Some((rank, test)),
            _ => None,
        })
        .collect()
}

#[test]
fn server_whose_client_is_lost_is_stopped() {
    let mut new = begun();
    new.lose(0, "it disconnected".to_owned(), Duration::ZERO);
    assert_eq!(stopped(&mut new), [(1, 0)]);
}

#[test]
fn invalid_messages_remove_the_rank() {
    let ended = |rows: Vec<crate::report::Row>, seconds| {
        Report::Ended(Box::new(Ended { test: 0, seconds, ports: None, rows, warnings: Vec::new(), trouble: None }))
    };
    let row = |size| sample::bandwidth_row(size, 10);
    let [from, to] = [0, 1];
    for (rank, report, part) in [
        (from, Report::Join(join(0, 2)), "joined twice"),
        (from, Report::Listening { test: 0, port: 7 }, "not its own"),
        (to, Report::Alive { test: 5 }, "does not run"),
        (to, ended(vec![row(65)], 1.0), "not requested"),
        (to, ended(vec![row(64), row(64)], 1.0), "not requested"),
        (to, ended(vec![row(64)], f64::NAN), "invalid time"),
        (to, ended(vec![row(64)], -1.0), "invalid time"),
    ] {
        let mut new = begun();
        new.report(rank, report, Duration::ZERO);
        let results = new.into_results();
        let error = results.ranks[rank as usize].error.clone().unwrap_or_default();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn flood_of_progress_removes_the_rank() {
    let mut new = begun();
    new.report(1, Report::Listening { test: 0, port: 7 }, Duration::ZERO);
    for _ in 0..1000 {
        new.report(0, Report::Alive { test: 0 }, Duration::from_secs(1));
    }
    assert!(new.into_results().ranks[0].error.as_deref().unwrap_or_default().contains("too many messages"));
}

#[test]
fn texts_of_ranks_are_cut_and_cleaned() {
    let mut new = begun();
    new.report(1, Report::Listening { test: 0, port: 7 }, Duration::ZERO);
    let text = format!("a\nb\u{202e}c{}", "x".repeat(100_000));
    let trouble = Some(Trouble { text, kind: super::Kind::Rdma });
    let warnings = (0..100).map(|number| format!("{number}")).collect();
    let ended = Ended { test: 0, seconds: 1.0, ports: None, rows: Vec::new(), warnings, trouble };
    new.report(0, Report::Ended(Box::new(ended)), Duration::ZERO);
    new.interrupt("ended".to_owned());
    let results = new.into_results();
    assert!(results.cells[0].error.as_ref().unwrap().chars().count() <= MAX_TEXT + 1);
    assert!(results.cells[0].error.as_ref().unwrap().starts_with("a b\u{fffd}cx"), "one line without bidi characters");
    assert_eq!(results.warnings.len(), MAX_WARNINGS);
    assert_eq!(results.troubles.first(), Some(&super::Kind::Rdma));
}

/// Changed bytes of valid messages: rank 0 either rejects them or goes on, and always ends with whole results.
#[test]
fn damaged_messages_cause_no_panic() {
    use crate::mesh::message::{frame, message};
    let mut random = Rng::with_seed(42);
    let row = |random: &mut Rng| match random.u64(..3) {
        0 => sample::latency_row(64, 1 + random.u64(..1000)),
        other => sample::bandwidth_row(if other == 1 { 64 } else { 128 }, random.u64(..1 << 40)),
    };
    for _ in 0..3000 {
        let mut new = begun();
        for _ in 0..4 {
            let test = random.u64(..3);
            let report = match random.u64(..4) {
                0 => Report::Listening { test, port: 7 },
                1 => Report::Alive { test },
                2 => Report::Join(join(0, 2)),
                _ => {
                    let rows = vec![row(&mut random)];
                    let ended = Ended { test, seconds: 0.5, ports: None, rows, warnings: Vec::new(), trouble: None };
                    Report::Ended(Box::new(ended))
                }
            };
            let mut frame = frame(&report).unwrap();
            for _ in 0..random.u64(..3) {
                let at = random.usize(..frame.body.len());
                frame.body[at] = b"0123456789-e.,:[]{}\"nx"[random.usize(..22)];
            }
            if let Ok(report) = message::<Report>(&frame) {
                let rank = random.u32(..2);
                new.report(rank, report, Duration::from_millis(1));
            }
        }
        new.interrupt("ended".to_owned());
        let results = new.into_results();
        crate::mesh::verdict::Verdict::of(&results.cells, &results.ranks, &["default".to_owned()], false);
    }
}
