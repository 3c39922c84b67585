//! Runs both sides of a test, each on a thread of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use stride_perf::endpoint::{EndpointFactory, Path, Role, Verbs};
use stride_perf::plan::{
    Measure, Operation, Placement, Plan, QpAttributes, Queues, RunLength, SideConfig, Transport, Workload,
};
use stride_perf::stats::Figures;

/// The MTU of the paths. Devices with the limits of a NIC have no larger one.
pub(crate) const MTU: u32 = 1024;

/// Returns the plan of a short test with valid sizes.
pub(crate) fn plan(operation: Operation, measure: Measure, transport: Transport) -> Plan {
    let config = SideConfig { device: Some("soft0".to_owned()), ..SideConfig::default() };
    Plan {
        workload: Workload {
            operation,
            measure,
            sizes: match transport {
                _ if operation.fetches() && operation != Operation::Read => vec![8],
                Transport::Ud => vec![2, MTU.into(), 64],
                _ => vec![2, 4096, 64],
            },
            amount: RunLength::Messages { count: 200, warm_up: 10 },
            is_validated: true,
            ..Workload::default()
        },
        attributes: QpAttributes { transport, ..QpAttributes::default() },
        queues: Queues { tx_depth: 16, rx_depth: 64, cq_moderation: 4, ..Queues::default() },
        placement: Placement { client: config.clone(), server: config, ..Placement::default() },
        ..Plan::default()
    }
}

/// Synchronizes both sides. If one side fails, the other does not wait for it.
struct Steps<'s> {
    to: Sender<()>,
    from: Receiver<()>,
    is_broken: &'s AtomicBool,
}

impl Steps<'_> {
    fn wait(&self) {
        self.to.send(()).unwrap();
        self.from.recv_timeout(Duration::from_secs(120)).unwrap();
    }
}

impl Drop for Steps<'_> {
    fn drop(&mut self) {
        self.is_broken.fetch_or(thread::panicking(), Ordering::Relaxed);
    }
}

/// The results of one size.
pub(crate) struct Played {
    pub(crate) client: Option<Figures>,
    pub(crate) server: Option<Figures>,
    /// The results of validation, first that of the client and then that of the server.
    pub(crate) checks: [Result<(), String>; 2],
}

/// Runs a plan. Returns the client's figures for each size.
pub(crate) fn play(plan: &Plan) -> Vec<Figures> {
    tried(plan).into_iter().map(|figures| figures.expect("the client measures")).collect()
}

/// Runs a plan. Returns the client's figures for each size, if the threads ran long enough to have figures.
pub(crate) fn tried(plan: &Plan) -> Vec<Option<Figures>> {
    let of = |played: Played| {
        played.checks.into_iter().for_each(|checked| checked.unwrap());
        played.client
    };
    both(plan, plan).into_iter().map(of).collect()
}

/// Runs a plan. The server may use another plan than the client.
pub(crate) fn both(plan: &Plan, server_plan: &Plan) -> Vec<Played> {
    let way = Path { client_gid: Some(0), server_gid: Some(0), mtu: MTU, others: Vec::new() };
    let path = Path { others: vec![way.clone(); plan.placement.client.count() - 1], ..way };
    let mut client = Verbs.open(plan, &plan.placement.client, Role::Client).unwrap();
    let mut server = Verbs.open(server_plan, &server_plan.placement.server, Role::Server).unwrap();
    let (near, far) = (client.create_queue_pairs(&path).unwrap(), server.create_queue_pairs(&path).unwrap());
    let (is_over, is_broken) = (AtomicBool::new(false), AtomicBool::new(false));
    let ((to_server, from_client), (to_client, from_server)) = (channel(), channel());
    thread::scope(|scope| {
        let (is_over, is_broken, sizes, path) = (&is_over, &is_broken, &plan.workload.sizes, &path);
        let goes_on = || !is_broken.load(Ordering::Relaxed);
        let steps = Steps { to: to_server, from: from_server, is_broken };
        // Allows a test to move a side to the thread that runs it.
        struct Other<T>(T);
        // SAFETY: only one thread uses the value at a time.
        unsafe impl<T> Send for Other<T> {}
        let other = Other(server);
        let server = scope.spawn(move || {
            let Other(mut server) = { other };
            let steps = Steps { to: to_client, from: from_client, is_broken };
            server.connect(path, &near).unwrap();
            steps.wait();
            let mut all = Vec::new();
            for &size in sizes {
                server.prepare(size).unwrap();
                steps.wait();
                let figures = server.run(size, None, &mut |_| goes_on() && !is_over.load(Ordering::Relaxed)).unwrap();
                steps.wait();
                all.push((figures, server.check(size).map_err(|error| format!("{error:#}"))));
            }
            server.end();
            all
        });
        client.connect(path, &far).unwrap();
        steps.wait();
        let mut all = Vec::new();
        for &size in sizes {
            client.prepare(size).unwrap();
            is_over.store(false, Ordering::Relaxed);
            steps.wait();
            let figures = client.run(size, None, &mut |_| goes_on()).unwrap();
            // A client that sends ends by itself.
            is_over.store(!plan.workload.direction.is_both(), Ordering::Relaxed);
            steps.wait();
            all.push((figures, client.check(size).map_err(|error| format!("{error:#}"))));
        }
        client.end();
        let theirs = server.join().unwrap();
        let of = |((client, ours), (server, theirs))| Played { client, server, checks: [ours, theirs] };
        all.into_iter().zip(theirs).map(of).collect()
    })
}
