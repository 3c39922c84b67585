//! Runs a rank of a mesh. Rank 0 also coordinates the mesh and prints its results.

mod hub;
mod meet;
mod pmi;
mod rank;
mod ssh;
mod test;

use std::fs;
use std::io::{BufWriter, Write, stdout};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use self::meet::Meeting;
use super::console::shown;
use super::exit::Exit;
use super::interrupt::Interrupt;
use super::verdict::THRESHOLD;
use super::{files, print_line};
use crate::cli::{Mesh, Output};
use crate::endpoint::EndpointFactory;
use crate::mesh::coordinator::{Coordinator, Results, Settings};
use crate::mesh::document::Document;
use crate::mesh::judgement::{Changed, Judgement, Missed};
use crate::mesh::launcher::{self, Membership};
use crate::mesh::limits;
use crate::mesh::message::Kind;
use crate::mesh::schedule::rounds;
use crate::mesh::{table, verdict};
use crate::plan::{Measure, Operation, Workload};
use crate::report::limits::Limits;
use crate::report::{Style, rfc3339, text};
use crate::thread::start;

/// How long a rank may be silent in addition to the time-out of its control channel.
const GRACE: Duration = Duration::from_secs(10);

/// Runs this rank.
pub(super) fn mesh(mesh: Mesh, factory: &'static dyn EndpointFactory) -> Result<Exit> {
    let mesh = Arc::new(mesh);
    let variable = |name: &str| std::env::var(name).ok();
    let is_started = variable(launcher::OWN).is_some();
    if let Some(hosts) = mesh.hosts.as_ref().filter(|_| !is_started) {
        let membership = ssh::membership(hosts, mesh.rendezvous.as_ref())?;
        return coordinate(&mesh, &membership, factory);
    }
    let found = launcher::find(variable, mesh.ranks).map_err(|why| anyhow!(why))?;
    let Some(mut membership) = found else {
        bail!(
            "no launcher has started this process: run it by srun, mpirun or torchrun, one process per host, or name the \
             hosts with --hosts"
        );
    };
    if let Some(place) = mesh.rendezvous.clone().filter(|_| !is_started) {
        membership.rendezvous = Some(place);
    }
    if is_started {
        ssh::end_with_stdin()?;
    }
    if membership.rank == 0 {
        return coordinate(&mesh, &membership, factory);
    }
    let rank = membership.rank;
    match meet::join(&membership, &mesh).and_then(|stream| rank::run(&mesh, &membership, stream, factory)) {
        Ok(()) => Ok(Exit::Done),
        Err(error) => {
            print_line(&format!("error: rank {rank}: {error:#}"));
            Ok(Exit::NoContact)
        }
    }
}

/// Runs rank 0.
fn coordinate(mesh: &Arc<Mesh>, membership: &Membership, factory: &'static dyn EndpointFactory) -> Result<Exit> {
    let output = &mesh.output;
    let baseline = output.compare.as_deref().map(|file| baseline(file, mesh)).transpose()?;
    [&output.json, &output.csv].into_iter().flatten().try_for_each(|file| files::can_be_written(file))?;
    raise_descriptors();
    let started = SystemTime::now();
    let interrupt = Interrupt::watch()?;
    let meeting = Meeting::open(membership, mesh)?;
    let settings = settings(mesh, membership, &meeting.job)?;
    let mut children = match mesh.hosts.as_ref().filter(|_| std::env::var_os(launcher::OWN).is_none()) {
        Some(hosts) => ssh::Children::start(hosts, membership, &meeting)?,
        None => ssh::Children::default(),
    };
    let own = Membership { job: meeting.job.clone(), ..membership.clone() };
    let (own_mesh, port) = (Arc::clone(mesh), meeting.listener.local_addr()?.port());
    start(move || {
        let joined = meet::join_at_home(&own, &own_mesh, port);
        if let Err(error) = joined.and_then(|stream| rank::run(&own_mesh, &own, stream, factory)) {
            print_line(&format!("error: rank 0: {error:#}"));
        }
    })?;
    let signal = || interrupt.signal();
    let results = hub::run(&meeting.listener, Coordinator::new(settings), &signal, &mut children)?;
    drop(meeting);
    children.end();
    let ended_by = interrupt.signal();
    let troubles = results.troubles.clone();
    results.warnings.iter().for_each(|warning| print_line(&format!("warning: {warning}")));
    let has_begun = !results.cells.is_empty() || results.error.is_none();
    let document = document(mesh, membership, started, results, baseline);
    let kept = keep(&document, output, has_begun);
    if let Some(error) = &document.error {
        print_line(&format!("error: {error}"));
    }
    let judgement = document.limits.as_ref();
    judgement.into_iter().for_each(|judgement| report(&document, judgement));
    kept?;
    Ok(match (ended_by, judgement) {
        (Some(signal), _) => Exit::Interrupted(signal),
        (None, Some(judgement)) if !judgement.is_held && has_begun => Exit::Missed,
        (None, _) => match troubles.first() {
            Some(Kind::Rdma) => Exit::Rdma,
            Some(Kind::Contact) => Exit::NoContact,
            Some(Kind::Other) => Exit::Failed,
            None => Exit::Done,
        },
    })
}

/// Whether data flows from the server of a test to its client.
fn is_from_server(workload: &Workload) -> bool {
    (workload.operation == Operation::Read) != workload.direction.is_reversed()
}

fn settings(mesh: &Mesh, membership: &Membership, job: &str) -> Result<Settings> {
    let rails = u32::try_from(mesh.rails.len()).unwrap_or(u32::MAX);
    let workload = mesh.rails.first().map(|rail| &rail.plan.workload);
    Ok(Settings {
        ranks: membership.size,
        rails,
        job: job.to_owned(),
        rounds: rounds(membership.size, rails, &mesh.modes, mesh.at_once),
        sizes: workload.map(|workload| workload.sizes.clone()).unwrap_or_default(),
        measure: workload.map_or(Measure::Bandwidth, |workload| workload.measure),
        is_from_server: workload.is_some_and(is_from_server),
        test: mesh.test()?,
        join: mesh.join,
        silence: mesh.contact.timeout + GRACE,
    })
}

/// Allows this process as many files as possible, because rank 0 has a connection to each rank.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // Ignores the error: the lower limit may suffice, and otherwise the hub prints a warning.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Reads the baseline. Fails at once if no mesh of this test can be compared with it.
fn baseline(file: &Path, mesh: &Mesh) -> Result<Document> {
    let cannot = || format!("cannot read {}", file.display());
    let text = text(fs::read(file).with_context(cannot)?).with_context(cannot)?;
    let cannot = || format!("cannot compare with {}", file.display());
    let document = Document::read(&text).with_context(cannot)?;
    mesh.rails.iter().try_for_each(|rail| limits::comparable(&document.plan, &rail.plan)).with_context(cannot)?;
    Ok(document)
}

/// Returns the results with their verdict.
fn document(
    mesh: &Mesh,
    membership: &Membership,
    started: SystemTime,
    results: Results,
    baseline: Option<Document>,
) -> Document {
    let Results { ranks, rounds, cells, error, .. } = results;
    let plan = mesh.rails.first().map(|rail| rail.plan.clone()).unwrap_or_default();
    let semantics = match plan.workload.measure {
        Measure::Bandwidth => None,
        Measure::Latency(semantics) => Some(semantics),
    };
    let rails: Vec<_> = mesh.rails.iter().map(|rail| rail.name.clone()).collect();
    let (format, kind) = Document::kind();
    let mut document = Document {
        format,
        kind,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        time: rfc3339(started),
        command_line: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
        launcher: membership.launcher.name().to_owned(),
        semantics,
        verdict: verdict::Verdict::of(&cells, &ranks, &rails, plan.workload.direction.is_both()),
        plan,
        ranks,
        rails,
        rounds,
        cells,
        limits: None,
        error,
    };
    let output = &mesh.output;
    let max_p99 = output.max_p99.map(|time| time.as_secs_f64() * 1e6);
    let limits = Limits { min_gbps: output.min_gbps, min_mpps: output.min_mpps, max_p99 };
    if !limits.are_none() || baseline.is_some() {
        let misses = limits::missed(&document.cells, &limits, &document.plan.workload.sizes);
        let threshold = output.threshold.unwrap_or(THRESHOLD);
        let compared = baseline.as_ref().map(|baseline| limits::compared(baseline, &document, threshold)).transpose();
        let is_compared = compared.is_ok();
        let compared = compared.unwrap_or_else(|error| {
            document.error.get_or_insert_with(|| format!("cannot compare with the baseline: {error:#}"));
            None
        });
        let threshold_percent = baseline.is_some().then_some(threshold);
        let (changes, missing) = compared.unwrap_or_default();
        let is_held =
            is_compared && misses.is_empty() && missing == 0 && !changes.iter().any(|changed| changed.change.is_worse);
        document.limits = Some(Judgement { is_held, misses, threshold_percent, changes, missing });
    }
    document
}

/// Writes the output files and prints the table, even if one of them fails. The files come first, because a launcher that ends the job may leave
/// little time.
fn keep(document: &Document, output: &Output, has_begun: bool) -> Result<()> {
    if !has_begun {
        return Ok(());
    }
    let write = |file: &Path, contents: &dyn Fn(&mut dyn Write) -> std::io::Result<()>| {
        let written = || {
            let mut out = BufWriter::new(files::create(file)?);
            contents(&mut out)?;
            out.flush()
        };
        written().with_context(|| format!("cannot write {}", file.display()))
    };
    let json = output.json.as_deref().map_or(Ok(()), |file| write(file, &|out| document.write(out)));
    let csv = output.csv.as_deref().map_or(Ok(()), |file| write(file, &|out| table::csv(document, out)));
    let table = shown(output.has_other_outputs(), |out| Ok(table::write(document, out, Style::of(&stdout()))?));
    json.and(csv).and(table)
}

/// Prints what misses the limits and the baseline.
fn report(document: &Document, judgement: &Judgement) {
    /// Number of lines of each kind.
    const MOST: usize = 5;
    let pair = |from, to| format!("{} to {}", document.label(from), document.label(to));
    for Missed { from, to, miss, .. } in judgement.misses.iter().take(MOST) {
        let found = miss.found.map_or_else(|| "nothing".to_owned(), |found| format!("{found:.3}"));
        let (pair, size) = (pair(*from, *to), miss.size_bytes);
        print_line(&format!("missed: {pair}, {size} B: {found}; {} is {}", miss.option, miss.limit));
    }
    let mut worse: Vec<_> = judgement.changes.iter().filter(|changed| changed.change.is_worse).collect();
    let gain = |changed: &Changed| changed.change.gain_percent.unwrap_or(f64::MIN);
    worse.sort_by(|one, other| gain(one).total_cmp(&gain(other)));
    for Changed { from, to, change, .. } in worse.iter().take(MOST) {
        let gain = change.gain_percent.map_or_else(String::new, |gain| format!("{gain:+.1} % "));
        print_line(&format!("worse: {}, {} B: {gain}than the baseline", pair(*from, *to), change.size_bytes));
    }
    for (count, what) in
        [(judgement.misses.len(), "results miss a limit"), (worse.len(), "results are worse than the baseline")]
    {
        if count > MOST {
            print_line(&format!("{count} {what}"));
        }
    }
    if judgement.missing > 0 {
        print_line(&format!("missed: {} pairs have a result in the baseline only", judgement.missing));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Job, parse};

    #[test]
    fn reads_and_reversed_tests_move_data_from_the_server() {
        for (words, expected) in
            [("write bw", false), ("read bw", true), ("write bw --reversed", true), ("send lat", false)]
        {
            let words = format!("stride-perf mesh {words}");
            let Ok(Job::Mesh(mesh)) = parse(words.split_whitespace()) else { panic!("{words}") };
            assert_eq!(is_from_server(&mesh.rails[0].plan.workload), expected, "{words}");
        }
    }
}
