//! Runs the client of a test.

use std::fs;
use std::io::{BufWriter, IsTerminal, Write, stderr, stdout};
use std::path::Path;

use anyhow::{Context, Result};

use super::console::{Console, shown};
use super::exit::Exit;
use super::interrupt::Signal;
use super::verdict::{Baseline, Verdict};
use super::{files, plot_cmd, print_line};
use crate::cli::{Measurement, Output};
use crate::control::{self, Carrier, Request};
use crate::endpoint::EndpointFactory;
use crate::plan::{Measure, Plan, RunLength, time};
use crate::report::csv::Csv;
use crate::report::hints::{Given, hints};
use crate::report::json::{Document, End, Event};
use crate::report::plot;
use crate::report::verdict;
use crate::report::{Environment, Style, bytes_in_words, columns, histogram};
use crate::stats::Bandwidth;

/// Runs a test and writes its results.
pub(super) fn measure(measurement: Measurement, factory: &dyn EndpointFactory) -> Result<Exit> {
    let Measurement { plan, given, server, contact, wait, output, warnings, notes } = measurement;
    warnings.iter().for_each(|warning| print_line(&format!("warning: {warning}")));
    notes.iter().for_each(|note| print_line(note));
    if let Some(warning) = interval_warning(&plan, &output, stderr().is_terminal()) {
        print_line(&format!("warning: {warning}"));
    }
    let baseline = output.compare.as_deref().map(|file| Baseline::read(file, &plan)).transpose()?;
    let named = [&output.json, &output.csv, &output.plot];
    named.into_iter().flatten().try_for_each(|file| files::can_be_written(file))?;
    let mut screen = Console::new(&plan, &output);
    screen.exchange = match server {
        None => Carrier::Process,
        Some(_) => Carrier::Tcp,
    };
    let request = Request { plan, given };
    let outcome = match &server {
        Some(host) => control::connect_reporting(host, &contact, wait, |why| screen.waits(host, why)).and_then(|met| {
            screen.reached(met.near.server);
            control::measure(met.connection, met.near, factory, &request, &mut screen)
        }),
        None => control::loopback(factory, &request, contact.timeout, &mut screen),
    };
    screen.end();
    if let Some(error) = screen.trouble.take() {
        return Err(error.into());
    }
    let hints = hints_of(&screen);
    if !output.json_stream {
        end(&screen, &hints, &output)?;
        if let Some(text) = outcome.as_ref().ok().and_then(|_| compared(&request.plan, &screen)) {
            print_line(&text);
        }
    }
    let failure = outcome.as_ref().err().map(|failure| screen.error_text(failure));
    // After a signal, an endless test counts as complete if it has a result.
    let is_end = request.plan.workload.is_endless && failure.is_none() && !screen.rows.is_empty();
    let ended_by = screen.ended_by.filter(|_| !is_end);
    let interrupted = ended_by.map(|signal| cut(signal, &screen, &request.plan));
    let error = failure.or_else(|| interrupted.clone());
    let judgement = if error.is_none() { Verdict::of(&output, &screen, baseline)? } else { Verdict::default() };
    keep(&output, &screen, &hints, error.clone(), judgement.verdict())?;
    if let Some((signal, error)) = ended_by.zip(error.as_ref()) {
        print_line(error);
        return Ok(Exit::Interrupted(signal));
    }
    if let Err(failure) = &outcome {
        print_line(&format!("error: {}", screen.error_text(failure)));
        return Ok(Exit::of(failure));
    }
    judgement.report(&output)?;
    Ok(judgement.exit())
}

/// Returns a warning if `--interval` was given but nothing shows the intervals, which can happen in latency tests,
/// because their rows do not contain figures of intervals.
fn interval_warning(plan: &Plan, output: &Output, is_terminal: bool) -> Option<&'static str> {
    let is_latency = matches!(plan.workload.measure, Measure::Latency(_));
    let is_shown = output.json_stream || is_terminal || plan.workload.is_endless;
    (is_latency && plan.sampling.interval.is_some() && !is_shown).then_some(
        "--interval has no effect for a latency if standard error is not a terminal; give --json-stream for an event \
         per interval, or -D forever for a row",
    )
}

/// Returns a message that validation has succeeded, which no other output shows.
fn compared(plan: &Plan, screen: &Console) -> Option<String> {
    let sizes = screen.rows.iter().filter(|row| plan.workload.is_validated && row.is_whole).count();
    let at = if sizes == 1 { String::new() } else { format!(", for each of {sizes} sizes") };
    (sizes > 0).then(|| format!("--validate: all data is correct{at}"))
}

/// Returns a message that states how much of a test was complete when a signal ended it.
fn cut(signal: Signal, screen: &Console, plan: &Plan) -> String {
    let rows = &screen.rows;
    let limits = screen
        .environment
        .as_ref()
        .map(|environment| environment.path.limits(&[&environment.client, &environment.server]));
    let all = plan.workload.sizes.iter().filter(|size| limits.is_none_or(|limits| plan.fits(**size, limits))).count();
    let whole = rows.iter().filter(|row| row.is_whole).count();
    let part = rows.iter().find(|row| !row.is_whole);
    let part = part.map_or_else(String::new, |row| format!(", and a part of {}", bytes_in_words(row.size)));
    let early = match plan.workload.amount {
        RunLength::Time { warm_up, .. } if rows.is_empty() && !warm_up.is_zero() => {
            format!(": the warm-up of {} had not ended", time::show(warm_up))
        }
        _ => String::new(),
    };
    format!("ended by {signal}: the results are incomplete, {whole} of {all} sizes are complete{part}{early}")
}

/// Returns hints about what limits the test.
fn hints_of(screen: &Console) -> Vec<String> {
    let Some(environment) = &screen.environment else { return Vec::new() };
    let Environment { plan, path, client, server, .. } = environment;
    let rows: Vec<_> = screen.rows.iter().filter(|row| row.is_whole).cloned().collect();
    let mut unmeasured = screen.unmeasured.clone();
    unmeasured.extend(rows.iter().filter(|row| row.bandwidth().is_some_and(Bandwidth::is_blank)).map(|row| row.size));
    if plan.workload.is_endless {
        // If the user ended an endless test, hints about the run length do not help.
        unmeasured.clear();
    }
    let given = Given { plan, path, sides: [client, server], rows: &rows, unmeasured: &unmeasured };
    let silent = screen.silent.iter().map(|(_, text)| text.clone());
    silent.chain(hints(&given).iter().map(ToString::to_string)).collect()
}

/// Prints the lines that follow the table.
fn end(screen: &Console, hints: &[String], output: &Output) -> Result<()> {
    if let [row] = screen.rows.as_slice()
        && let Some(latency) = row.latency()
    {
        shown(output.has_other_outputs(), |out| {
            writeln!(out)?;
            Ok(histogram::write(out, latency, columns(), Style::of(&stdout()))?)
        })?;
    }
    // Leaves out hints that were already printed as warnings.
    let is_said = |hint: &String| screen.warned.contains(hint) || screen.silent.iter().any(|(_, text)| text == hint);
    let new = hints.iter().filter(|hint| !is_said(hint));
    new.for_each(|hint| print_line(&format!("hint: {hint}")));
    Ok(())
}

/// Writes the last event of a stream, and the output files.
fn keep(
    output: &Output,
    screen: &Console,
    hints: &[String],
    error: Option<String>,
    verdict: Option<verdict::Verdict>,
) -> Result<()> {
    let rows = &screen.rows;
    if output.json_stream {
        let count = rows.len() as u64;
        let end = End { rows: count, hints: hints.to_vec(), error: error.clone(), verdict: verdict.clone() };
        shown(output.has_other_outputs(), |out| Ok(Event::End(end).write(out)?))?;
    }
    let Some(environment) = &screen.environment else {
        let named = [&output.json, &output.csv, &output.plot].into_iter().flatten();
        let old = named.filter(|file| !files::is_open(file));
        let old =
            old.filter(|file| fs::metadata(file).is_ok_and(|port_info| port_info.is_file() && port_info.len() > 0));
        old.for_each(|file| print_line(&format!("nothing was measured; {} is unchanged", file.display())));
        return Ok(());
    };
    let mut document = Document::new(environment.clone(), rows.clone(), hints.to_vec());
    (document.error, document.verdict) = (error, verdict);
    if let Some(file) = &output.json {
        write(file, |out| Ok(document.write(out)?))?;
    }
    if let Some(file) = &output.csv {
        let csv = Csv::new(environment);
        write(file, |out| {
            csv.head(out)?;
            rows.iter().try_for_each(|row| csv.row(out, row))?;
            Ok(())
        })?;
    }
    if let Some(file) = &output.plot {
        let series = [document.series("this run")];
        if plot::has_points(&series) {
            plot_cmd::draw(&series, file)?;
        } else {
            print_line(&format!("nothing to plot; {} is not written", file.display()));
        }
    }
    Ok(())
}

fn write(file: &Path, contents: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let write = || {
        let mut out = BufWriter::new(files::create(file)?);
        contents(&mut out)?;
        Ok::<(), anyhow::Error>(out.flush()?)
    };
    write().with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use std::os::fd::BorrowedFd;

    use sideway_test_names::Folder;

    use super::*;
    use crate::cli::{self, Job};
    use crate::endpoint::fake::{Fake, Stage};
    use crate::endpoint::{self, Endpoint, PeerInfo, PortInfo, Role, StepProgress, Verbs};
    use crate::plan::SideConfig;
    use crate::stats::Figures;

    /// Simulates devices that lose the messages of one side. The destination of the messages is changed, and UC reports
    /// no error.
    struct LossyFactory(Role, Loss);

    /// Which ports of the peer receive nothing.
    #[derive(Clone, Copy)]
    enum Loss {
        All,
        Second,
    }

    struct LossyEndpoint(Box<dyn Endpoint>, Option<Loss>);

    impl EndpointFactory for LossyFactory {
        fn open(&self, plan: &Plan, config: &SideConfig, role: Role) -> Result<Box<dyn Endpoint>> {
            Ok(Box::new(LossyEndpoint(Verbs.open(plan, config, role)?, (role == self.0).then_some(self.1))))
        }
    }

    impl Endpoint for LossyEndpoint {
        fn port_info(&self) -> &PortInfo {
            self.0.port_info()
        }

        fn create_queue_pairs(&mut self, path: &endpoint::Path) -> Result<PeerInfo> {
            self.0.create_queue_pairs(path)
        }

        fn connect(&mut self, path: &endpoint::Path, theirs: &PeerInfo) -> Result<()> {
            let mut theirs = theirs.clone();
            let of = self.1;
            let spoil = |peer_info: &mut PeerInfo| peer_info.queue_pairs.iter_mut().for_each(|end| end.rkey ^= 0x5555);
            if matches!(of, Some(Loss::All)) {
                spoil(&mut theirs);
            }
            theirs.others.iter_mut().filter(|_| of.is_some()).for_each(spoil);
            self.0.connect(path, &theirs)
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
            self.0.run(size, readable_fd, report)
        }

        fn settle(
            &mut self,
            size: u64,
            figures: Option<Figures>,
            was_cut: bool,
            report: &mut dyn FnMut() -> bool,
        ) -> Result<Option<Figures>> {
            self.0.settle(size, figures, was_cut, report)
        }
    }

    #[test]
    fn undelivered_writes_miss_limits() {
        let folder = Folder::new();
        let file = folder.join("lossy.json");
        let run = |words: &str, factory: &dyn EndpointFactory| {
            let words = format!("{words} -c uc -d soft0 --loopback --min-mpps 0.000001 --json {}", file.display());
            let end = exit(&words, factory);
            let document = Document::read(&fs::read_to_string(&file).unwrap()).unwrap();
            fs::remove_file(&file).unwrap();
            (end, document)
        };
        for (words, lossy) in [
            ("write bw -n 500 -s 64", Role::Client),
            ("write bw -n 5 --warm-up 0 -s 1M -q 2 --threads 2", Role::Client),
            ("write bw -D 20ms --warm-up 0 -s 4K", Role::Client),
            ("write bw -n 500 -s 64 --reversed", Role::Server),
        ] {
            let (end, whole) = run(words, &Verbs);
            let row = whole.rows[0].bandwidth().unwrap();
            assert_eq!((end, row.arrived), (Exit::Done, None), "{words}: {row:?}");
            let (end, none) = run(words, &LossyFactory(lossy, Loss::All));
            let row = none.rows[0].bandwidth().unwrap();
            assert_eq!((end, row.messages, row.arrived), (Exit::Missed, 0, Some(0)), "{words}: {row:?}");
            assert!(row.sent > Some(0) && none.hints.iter().any(|hint| hint.contains("none of ")), "{:?}", none.hints);
            let verdict = none.verdict.unwrap();
            assert!(!verdict.is_held && none.hints.iter().all(|hint| !hint.contains("--imm")), "{:?}", none.hints);
        }
        // Messages of the other direction arrive, but a test with both directions requires messages of both.
        for lossy in [Role::Client, Role::Server] {
            let (end, one) = run("write bw -n 500 -s 64 -b", &LossyFactory(lossy, Loss::All));
            let row = one.rows[0].bandwidth().unwrap();
            assert_eq!((end, row.messages, row.arrived), (Exit::Missed, 500, None), "{lossy:?}: {row:?}");
            let name = if lossy == Role::Client { "client" } else { "server" };
            let start = format!("64 B: nothing that the {name} sent arrived. ");
            assert!(one.hints.iter().any(|hint| hint.starts_with(&start)), "{:?}", one.hints);
            assert!(!one.verdict.unwrap().is_held);
        }
    }

    #[test]
    fn port_without_arrivals_counts_as_zero() {
        let folder = Folder::new();
        let file = folder.join("lossy-port.json");
        for options in ["-n 500", "-n 500 --reversed", "-D 20ms --warm-up 0", "-n 500 -b"] {
            let words = format!(
                "write bw {options} -s 64 -c uc -q 2 -d soft0,soft0 --loopback --min-mpps 0.000001 --json {}",
                file.display()
            );
            let lossy = if options.contains("--reversed") { Role::Server } else { Role::Client };
            let end = exit(&words, &LossyFactory(lossy, Loss::Second));
            let document = Document::read(&fs::read_to_string(&file).unwrap()).unwrap();
            fs::remove_file(&file).unwrap();
            let row = document.rows[0].bandwidth().unwrap();
            let [first, second] = row.ports.as_slice() else { panic!("{words}: {row:?}") };
            let back = if options.contains("-b") { 500 } else { 0 };
            assert_eq!((end, second.messages, row.arrived), (Exit::Missed, back, None), "{words}: {row:?}");
            assert!(first.messages > back && row.messages == first.messages + back, "{words}: {row:?}");
            assert!(document.hints.iter().any(|hint| hint.contains("from port 2 of the test, soft0 port 1,")));
            assert_eq!(exit(&words, &Verbs), Exit::Done);
            fs::remove_file(&file).unwrap();
        }
    }

    fn exit(words: &str, factory: &dyn EndpointFactory) -> Exit {
        match cli::parse(format!("stride-perf {words}").split_whitespace()) {
            Ok(Job::Measure(measurement)) => measure(*measurement, factory).unwrap(),
            other => panic!("{words}: {other:?}"),
        }
    }

    #[test]
    fn messages_of_trespass_are_measured_beside_sends() {
        for words in ["msg lat -s 64,64K -n 300", "msg bw -s 64,1M -n 300 -t 4", "msg bw -s 4K -D 20ms --warm-up 0"] {
            assert_eq!(exit(&format!("{words} --loopback -d soft0"), &Verbs), Exit::Done, "{words}");
        }
        assert_eq!(exit("msg bw -n 300 --validate --loopback -d soft0", &Verbs), Exit::Failed);
    }

    #[test]
    fn rdma_failure_names_the_size_among_several() {
        let folder = Folder::new();
        let file = folder.join("size.json");
        let error = |sizes: &str| {
            let factory = Fake { fails: Some((Role::Server, Stage::Run)), ..Fake::default() };
            let words = format!("write bw -s {sizes} -n 1000 --loopback --json {}", file.display());
            assert_ne!(exit(&words, &factory), Exit::Done);
            let text = fs::read_to_string(&file).unwrap();
            fs::remove_file(&file).unwrap();
            serde_json::from_str::<serde_json::Value>(&text).unwrap()["error"].as_str().unwrap().to_owned()
        };
        assert_eq!(error("64K,128"), "at 64 KiB: the server: fake0 fails at Run, as configured");
        assert_eq!(error("64K"), "the server: fake0 fails at Run, as configured");
    }

    #[test]
    fn interval_without_output_causes_a_warning() {
        let warning = |words: &str, is_terminal| match cli::parse(format!("stride-perf {words} h").split_whitespace()) {
            Ok(Job::Measure(measurement)) => interval_warning(&measurement.plan, &measurement.output, is_terminal),
            other => panic!("{words}: {other:?}"),
        };
        for words in ["write lat --interval 1 -n 5000", "write lat --interval 1 -D 5"] {
            assert!(warning(words, false).unwrap().starts_with("--interval has no effect for a latency"), "{words}");
            assert_eq!(warning(words, true), None, "{words}");
            assert_eq!(warning(&format!("{words} --json-stream"), false), None, "{words}");
        }
        for words in ["write lat -n 5000", "write bw --interval 1 -n 5000", "write lat --interval 1 -D forever"] {
            assert_eq!(warning(words, false), None, "{words}");
        }
    }

    #[test]
    fn exit_status_follows_the_failure() {
        let words = "write bw -s 64 -n 1000 --loopback";
        assert_eq!(exit(words, &Fake::default()), Exit::Done);
        for (stage, expected) in [(Stage::Open, Exit::Failed), (Stage::Connect, Exit::Rdma), (Stage::Run, Exit::Rdma)] {
            let factory = Fake { fails: Some((Role::Server, stage)), ..Fake::default() };
            assert_eq!(exit(words, &factory), expected, "{stage:?}");
        }
        // Names that end in `.invalid` are reserved, and have no address.
        assert_eq!(exit("write bw names.invalid", &Fake::default()), Exit::NoContact);
        assert_eq!(exit(&format!("{words} --min-mpps 1000"), &Fake::default()), Exit::Missed);
    }

    #[test]
    fn empty_run_is_still_checked_against_limits() {
        let folder = Folder::new();
        let (json, svg) = (folder.join("blank.json"), folder.join("blank.svg"));
        for (words, is_idle) in [("write bw -D 1ms -s 1G", false), ("write lat -D 1ms -s 8M", true)] {
            let limit = if is_idle { "--max-p99 1" } else { "--min-gbps 1" };
            let words = format!("{words} --loopback {limit} --json {} --plot {}", json.display(), svg.display());
            assert_eq!(exit(&words, &Fake { is_idle, ..Fake::default() }), Exit::Missed, "{words}");
            let text = fs::read_to_string(&json).unwrap();
            fs::remove_file(&json).unwrap();
            let document: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(document["verdict"]["is_held"], false, "{document}");
            assert!(
                document["hints"].to_string().contains("nothing was measured, because no message completed"),
                "{document}"
            );
            assert!(!svg.exists());
        }
    }

    #[test]
    fn early_end_by_the_user_causes_no_duration_hint() {
        let Ok(Job::Measure(measurement)) = cli::parse("stride-perf write bw -D forever --loopback".split_whitespace())
        else {
            panic!("the command measures")
        };
        let Measurement { mut plan, output, .. } = *measurement;
        for is_endless in [true, false] {
            plan.workload.is_endless = is_endless;
            let mut screen = Console::new(&plan, &output);
            let port_info =
                Fake::default().open(&plan, &plan.placement.client, Role::Client).unwrap().port_info().clone();
            let path = endpoint::Path { client_gid: None, server_gid: None, mtu: 4096, others: Vec::new() };
            screen.environment = Some(Environment::new(
                std::time::SystemTime::now(),
                Vec::new(),
                plan.clone(),
                path,
                [port_info.clone(), port_info],
            ));
            screen.unmeasured = vec![64];
            let has_hint = hints_of(&screen).iter().any(|hint| hint.contains("Try a longer -D"));
            assert_eq!(has_hint, !is_endless);
        }
    }

    #[test]
    fn unmeasured_size_misses_a_limit() {
        let factory = Fake { is_idle: true, ..Fake::default() };
        let words = "write lat --loopback -D 1ms -s 8M";
        assert_eq!(exit(words, &factory), Exit::Done);
        assert_eq!(exit(&format!("{words} --max-p99 1"), &factory), Exit::Missed);
    }
}
