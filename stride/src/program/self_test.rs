//! Runs the command `self-test`, which is a short test of each operation and transport. Both sides run in this process.

use std::io::{self, Write, stdout};
use std::time::Duration;

use anyhow::Result;

use super::exit::Exit;
use crate::control::{self, Cause, Failure, Request, Watch};
use crate::endpoint::{EndpointFactory, Path, PortInfo, Role, is_unsupported};
use crate::plan::{
    Given, Measure, Operation, Placement, Plan, QpAttributes, Queues, RunLength, Sampling, Semantics, SideConfig,
    Transport, Workload,
};

/// The transports that devices of any vendor may support.
const TRANSPORTS: [Transport; 4] = [Transport::Rc, Transport::Uc, Transport::Ud, Transport::Xrc];

/// The transports that only devices of one vendor support.
const OF_VENDORS: [Transport; 2] = [Transport::Dc, Transport::Srd];

const OPERATIONS: [Operation; 7] = [
    Operation::Write,
    Operation::WriteWithImmediate,
    Operation::Read,
    Operation::Send,
    Operation::SendWithImmediate,
    Operation::FetchAdd,
    Operation::CompareSwap,
];

/// Time limit of each test, which is far longer than a working test takes.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Runs the self-test on a device.
pub(super) fn self_test(config: &SideConfig, factory: &dyn EndpointFactory) -> Result<Exit> {
    // An error that applies to all tests is reported once, before any of them runs.
    factory.look(config)?;
    let mut out = stdout().lock();
    let report = run(config, factory, &mut out)?;
    report.write(&mut out)?;
    Ok(report.exit())
}

/// A combination of transport, operation and measurement that is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Case {
    operation: Operation,
    transport: Transport,
    is_latency: bool,
}

impl Case {
    fn name(self) -> String {
        format!("{} {}", self.operation, if self.is_latency { "lat" } else { "bw" })
    }

    /// Returns a plan with few messages of several sizes. For bandwidth, several messages are in flight.
    fn plan(self, config: &SideConfig) -> Plan {
        let Self { operation, transport, is_latency } = self;
        let on_gpu = config.memory.as_ref().is_some_and(|memory| memory.cuda().is_some());
        let semantics = match operation {
            Operation::Write if on_gpu => Semantics::Ack,
            _ if operation.fetches() => Semantics::Ack,
            _ => Semantics::Oneway,
        };
        let sizes = match transport {
            _ if operation.is_atomic() => vec![8],
            // Messages over these transports must fit into one packet, so the sizes are smaller.
            Transport::Ud | Transport::Srd => vec![1, 64, 1024],
            _ => vec![1, 64, 4096, 65536],
        };
        let (count, depth) = if is_latency { (50, 1) } else { (200, 16) };
        let mut plan = Plan {
            workload: Workload {
                operation,
                measure: if is_latency { Measure::Latency(semantics) } else { Measure::Bandwidth },
                sizes,
                amount: RunLength::Messages { count, warm_up: 4 },
                is_validated: true,
                ..Workload::default()
            },
            attributes: QpAttributes { transport, ..QpAttributes::default() },
            queues: Queues {
                queue_pairs: if is_latency { 1 } else { 2 },
                tx_depth: depth,
                cq_moderation: if is_latency || transport == Transport::Srd { 1 } else { 4 },
                ..Queues::default()
            },
            sampling: Sampling { timeout: TIMEOUT / 2, ..Sampling::default() },
            placement: Placement { client: config.clone(), server: config.clone(), ..Placement::default() },
        };
        plan.placement.is_relaxed &= !plan.polls_memory();
        plan
    }
}

/// The result of one test.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// The test succeeded, and all data arrived.
    Works,
    /// The device does not support what is tested. The text is the cause.
    Lacks(String),
    /// The test failed, with this class of failure and this cause.
    Fails(Cause, String),
}

impl Verdict {
    fn of(case: Case, config: &SideConfig, factory: &dyn EndpointFactory, met: &mut dyn Watch) -> Self {
        let plan = case.plan(config);
        if let Err(contradiction) = plan.check() {
            return Self::Lacks(contradiction.0);
        }
        let request = Request { plan, given: Given::default() };
        match control::loopback(factory, &request, TIMEOUT, met) {
            Ok(_) => Self::Works,
            Err(Failure::Ours(error) | Failure::Rdma(error)) if is_unsupported(&error) => {
                Self::Lacks(format!("{error:#}"))
            }
            Err(failure) => Self::Fails(failure.cause(), failure.to_string()),
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Works => "ok",
            Self::Lacks(_) => "no",
            Self::Fails(..) => "FAIL",
        }
    }
}

/// Records the port and the path for the header.
#[derive(Default)]
struct Met(Option<(PortInfo, Path)>);

impl Watch for Met {
    fn met(&mut self, client: &PortInfo, _: &PortInfo, path: &Path) {
        self.0.get_or_insert_with(|| (client.clone(), path.clone()));
    }
}

/// The results of all tests.
#[derive(Debug, Default)]
struct Report(Vec<(Case, Verdict)>);

/// Returns the transports that the device may support.
fn transports(config: &SideConfig, factory: &dyn EndpointFactory) -> Vec<Transport> {
    // If the device cannot be opened, each test will report that.
    let side = factory.open(&Plan::default(), config, Role::Client);
    let provider = side.map_or_else(|_| String::new(), |side| side.port_info().provider.clone());
    TRANSPORTS.into_iter().chain(Transport::of_driver(&provider)).collect()
}

/// Runs all tests. Writes the line of each operation as soon as its tests are complete.
fn run(config: &SideConfig, factory: &dyn EndpointFactory, out: &mut dyn Write) -> io::Result<Report> {
    let (mut report, mut met) = (Report::default(), Met::default());
    let transports = transports(config, factory);
    for operation in OPERATIONS {
        let mut words = Vec::new();
        for &transport in &transports {
            for is_latency in [false, true] {
                let case = Case { operation, transport, is_latency };
                if !transport.has(operation) {
                    words.push("-");
                    continue;
                }
                let verdict = Verdict::of(case, config, factory, &mut met);
                words.push(verdict.word());
                report.0.push((case, verdict));
            }
        }
        if operation == OPERATIONS[0] {
            head(met.0.as_ref(), &transports, out)?;
        }
        let words: Vec<_> = words.chunks(2).map(|pair| format!("{:>6} {:>4}", pair[0], pair[1])).collect();
        writeln!(out, "{:<22}{}", operation.to_string(), words.join(" "))?;
        out.flush()?;
    }
    Ok(report)
}

fn head(met: Option<&(PortInfo, Path)>, transports: &[Transport], out: &mut dyn Write) -> io::Result<()> {
    if let Some((port_info, path)) = met {
        let PortInfo { device, port, host, provider, .. } = port_info;
        writeln!(out, "self-test of {device} port {port} on {host} ({provider}), MTU {}\n", path.mtu)?;
    }
    let names: Vec<_> = transports.iter().map(|transport| format!("{:>11}", transport.to_string())).collect();
    writeln!(out, "{:22}{}", "", names.join(" "))?;
    writeln!(out, "{:22}{}", "", vec![format!("{:>6} {:>4}", "bw", "lat"); transports.len()].join(" "))
}

impl Report {
    /// Writes the causes below the table, each of them once, and then the totals.
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out)?;
        let mut causes: Vec<(&str, &str, Vec<Case>)> = Vec::new();
        for (case, verdict) in &self.0 {
            let (Verdict::Lacks(text) | Verdict::Fails(_, text)) = verdict else { continue };
            match causes.iter_mut().find(|(word, cause, _)| (*word, *cause) == (verdict.word(), text.as_str())) {
                Some((.., cases)) => cases.push(*case),
                None => causes.push((verdict.word(), text, vec![*case])),
            }
        }
        for (word, text, cases) in causes {
            writeln!(out, "{word}: {}: {text}", self.names(&cases))?;
        }
        let count = |word| self.0.iter().filter(|(_, verdict)| verdict.word() == word).count();
        writeln!(out, "{} ok, {} not supported by the device, {} failed", count("ok"), count("no"), count("FAIL"))?;
        out.flush()
    }

    /// Lists tests by transport. If the list contains all tests of a transport, only the transport is named.
    fn names(&self, cases: &[Case]) -> String {
        if cases.len() == self.0.len() {
            return "everything".to_owned();
        }
        let of = |transport| {
            let own: Vec<_> = cases.iter().filter(|case| case.transport == transport).map(|case| case.name()).collect();
            let all = self.0.iter().filter(|(case, _)| case.transport == transport).count();
            let what = if own.len() == all { "everything".to_owned() } else { own.join(", ") };
            (!own.is_empty()).then(|| format!("{what} over {transport}"))
        };
        let all = TRANSPORTS.into_iter().chain(OF_VENDORS);
        all.filter_map(of).collect::<Vec<_>>().join("; ")
    }

    fn exit(&self) -> Exit {
        let failed =
            |of: Cause| self.0.iter().any(|(_, verdict)| matches!(verdict, Verdict::Fails(cause, _) if *cause == of));
        let works = self.0.iter().any(|(_, verdict)| *verdict == Verdict::Works);
        match () {
            () if failed(Cause::Rdma) => Exit::Rdma,
            // If no test works, the self-test counts as failed.
            () if failed(Cause::Other) || failed(Cause::Contact) || !works => Exit::Failed,
            () => Exit::Done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::fake::{Fake, Stage};
    use crate::plan::Memory;

    fn play(factory: &Fake) -> (Exit, String) {
        let mut out = Vec::new();
        let report = run(&SideConfig::default(), factory, &mut out).unwrap();
        report.write(&mut out).unwrap();
        (report.exit(), String::from_utf8(out).unwrap())
    }

    #[test]
    fn self_test_prints_a_table() {
        let (exit, text) = play(&Fake::default());
        assert_eq!(exit, Exit::Done);
        assert_eq!(
            text,
            "self-test of fake0 port 1 on fake, Linux (fake), MTU 4096\n\n\
             \u{20}                              RC          UC          UD         XRC\n\
             \u{20}                         bw  lat     bw  lat     bw  lat     bw  lat\n\
             write                     ok   ok     ok   ok      -    -     ok   ok\n\
             write with immediate      ok   ok     ok   ok      -    -     ok   ok\n\
             read                      ok   ok      -    -      -    -     ok   ok\n\
             send                      ok   ok     ok   ok     ok   ok     ok   ok\n\
             send with immediate       ok   ok     ok   ok     ok   ok     ok   ok\n\
             fetch-and-add             ok   ok      -    -      -    -     ok   ok\n\
             compare-and-swap          ok   ok      -    -      -    -     ok   ok\n\
             \n\
             40 ok, 0 not supported by the device, 0 failed\n"
        );
    }

    #[test]
    fn vendor_transport_is_tested_on_its_devices() {
        for (provider, name) in [("mlx5_core", " DC"), ("efa", "SRD")] {
            let (exit, text) = play(&Fake { provider: Some(provider), ..Fake::default() });
            assert_eq!(exit, Exit::Done);
            assert!(text.lines().nth(2).unwrap().ends_with(name), "{text}");
        }
    }

    #[test]
    fn unsupported_test_is_not_a_failure() {
        let (exit, text) = play(&Fake { lacks: Some(Operation::Read), ..Fake::default() });
        assert_eq!(exit, Exit::Done);
        let reason = "no: read bw, read lat over RC; read bw, read lat over XRC: fake0 does not support read\n";
        assert!(text.contains(reason), "{text}");
        assert!(text.ends_with("36 ok, 4 not supported by the device, 0 failed\n"), "{text}");
    }

    #[test]
    fn failure_class_determines_the_exit_status() {
        for (stage, expected) in [(Stage::Run, Exit::Rdma), (Stage::Open, Exit::Failed)] {
            let (exit, text) = play(&Fake { fails: Some((Role::Server, stage)), ..Fake::default() });
            assert_eq!(exit, expected);
            assert!(
                text.contains(&format!("FAIL: everything: the server: fake0 fails at {stage:?}, as configured\n")),
                "{text}"
            );
            assert!(text.ends_with("0 ok, 0 not supported by the device, 40 failed\n"), "{text}");
        }
        let nothing = Report(Vec::new());
        assert_eq!(nothing.exit(), Exit::Failed);
    }

    #[test]
    fn fully_unsupported_transport_is_named_once() {
        let case = |transport, is_latency| Case { operation: Operation::Send, transport, is_latency };
        let lacks = || Verdict::Lacks("it has none".to_owned());
        let report = Report(vec![
            (case(Transport::Rc, false), Verdict::Works),
            (case(Transport::Rc, true), lacks()),
            (case(Transport::Xrc, false), lacks()),
            (case(Transport::Xrc, true), lacks()),
        ]);
        let mut out = Vec::new();
        report.write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("\nno: send lat over RC; everything over XRC: it has none\n"), "{text}");
        assert_eq!(report.exit(), Exit::Done);
    }

    #[test]
    fn all_plans_are_valid() {
        for (operation, transport) in OPERATIONS.into_iter().flat_map(|one| {
            let all = TRANSPORTS.into_iter().chain(OF_VENDORS);
            all.map(move |other| (one, other))
        }) {
            for is_latency in [false, true] {
                let case = Case { operation, transport, is_latency };
                let plan = case.plan(&SideConfig::default());
                assert_eq!(plan.check().is_ok(), transport.has(operation), "{} over {transport}", case.name());
            }
        }
        // With GPU memory, a plain write has only the latency `ack`, and over UC the peer does not acknowledge messages.
        let config = SideConfig { memory: Some(Memory::Cuda("0".to_owned())), ..SideConfig::default() };
        let case = Case { operation: Operation::Write, transport: Transport::Rc, is_latency: true };
        assert_eq!(case.plan(&config).check(), Ok(()));
        let case = Case { transport: Transport::Uc, ..case };
        assert!(matches!(Verdict::of(case, &config, &Fake::default(), &mut ()), Verdict::Lacks(_)));
    }
}
