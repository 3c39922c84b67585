//! What went wrong in traces: the first failure of each connection, its cause, the remedy, and what follows from it.
//!
//! `read` makes traces of lines, `model` the objects and requests that all traces state, and `report` the findings. The rules are
//! in one file for each subject.

mod calls;
mod connection;
mod manager;
mod memory;
mod model;
mod queues;
mod read;
mod report;

use std::collections::HashMap;

pub use read::{ReadError, Trace};
pub use report::{Certainty, Finding, Report};

use crate::record::What;
use model::{Model, Moment, Object, argument};
use report::{Cause, Follows};

/// Explains traces: what went wrong first, with the likely cause and the remedy. The traces of both peers, in any order,
/// give more than one of them.
///
/// ```
/// use rdma_lens::{Trace, explain};
///
/// let trace = r#"{"at":9,"thread":1,"kind":"call","verb":"ibv_destroy_cq","arguments":[["cq","cq 2"]],"result":"","error":"EBUSY"}"#;
/// let report = explain(&[Trace::read(trace.as_bytes())?]);
/// assert!(report.to_string().contains("cq 2 is still in use"));
/// # Ok::<(), rdma_lens::ReadError>(())
/// ```
pub fn explain(traces: &[Trace]) -> Report {
    let model = Model::new(traces);
    let mut findings = Findings { model: &model, found: Vec::new(), blamed: HashMap::new() };
    model.moments.iter().for_each(|moment| findings.look(*moment));
    findings.look_at_requests();
    let mut found = findings.found;
    found.sort_by_key(|finding| (finding.certainty == Certainty::Hint, finding.at));
    Report { findings: found, notes: notes(&model, traces) }
}

fn notes(model: &Model<'_>, traces: &[Trace]) -> Vec<String> {
    let killed = model.killed().map(|(trace, process)| format!("trace {}: {process}, or it still runs", trace + 1));
    let mut notes: Vec<String> = killed.collect();
    for (index, trace) in traces.iter().enumerate() {
        if trace.is_cut {
            notes.push(format!("the last line of trace {} is cut off, and was left out", index + 1));
        }
        if trace.dropped() > 0 {
            notes.push(format!("trace {} lacks {} records, so causes may be missing", index + 1, trace.dropped()));
        }
    }
    notes
}

/// What to do about a fault that was asked for.
const SCHEDULED: &str = "nothing, unless the program should survive it";

/// Whether a record of a call is that of a fault.
fn is_fault(verb: &str) -> bool {
    matches!(verb, "fault" | "device")
}

struct Findings<'m, 'a> {
    model: &'m Model<'a>,
    found: Vec<Finding>,
    /// The finding from which later failures of a queue pair follow, by its trace and name.
    blamed: HashMap<(usize, String), usize>,
}

impl Findings<'_, '_> {
    fn look(&mut self, moment: Moment<'_>) {
        let (trace, time) = (moment.trace, moment.time);
        match &moment.record.what {
            What::Completion { status, .. } if status == "SUCCESS" => {}
            What::Completion { qp, wr_id, status, opcode, .. } => {
                self.completion(moment, *qp, *wr_id, status, opcode.starts_with("RECV"));
            }
            What::Refused { qp, is_receive, error, .. } => {
                let Some(pair) = self.model.pair(trace, *qp, time) else { return };
                let queue = if *is_receive { &pair.receives } else { &pair.sends };
                let posted = queue.iter().rev().find(|posted| posted.is_refused && posted.time <= time);
                let posted = posted.filter(|_| !(*is_receive && moment.record.injected));
                if self.follow(&pair_key(pair), |follows| follows.failed += 1) {
                    return;
                }
                if let Some(cause) = queues::refused(pair, posted, *is_receive, (error, time)) {
                    self.add(moment, cause);
                }
            }
            What::Call { verb, arguments, .. } if moment.record.injected && is_fault(verb) => {
                self.scheduled(moment, arguments);
            }
            What::Call { verb, arguments, error: None, .. } => self.success(moment, verb, arguments),
            What::Call { verb, arguments, error: Some(error), .. } => {
                if let Some(cause) = calls::failed(self.model, moment, verb, arguments, error) {
                    self.add(moment, cause);
                }
            }
            _ => {}
        }
    }

    /// A fault of a schedule, from which failures of its queue pair follow.
    fn scheduled(&mut self, moment: Moment<'_>, arguments: &[(String, String)]) {
        let text = argument(arguments, "fault").or_else(|| argument(arguments, "command")).unwrap_or_default();
        let finding = self.add(moment, Cause::certain(format!("the schedule of faults: {text}"), SCHEDULED));
        let pair = argument(arguments, "qp").and_then(|name| self.model.object(moment.trace, name, moment.time));
        if let Some(pair) = pair {
            self.blame(pair, moment.time, finding);
        }
    }

    fn success(&mut self, moment: Moment<'_>, verb: &str, arguments: &[(String, String)]) {
        let (trace, time) = (moment.trace, moment.time);
        match verb {
            "ibv_modify_qp" => {
                let starts = argument(arguments, "state")
                    .is_some_and(|step| step.ends_with("→RESET") || step.ends_with("→INIT"));
                if let Some(name) = argument(arguments, "qp").filter(|_| starts) {
                    self.blamed.remove(&(trace, name.to_owned()));
                }
            }
            "ibv_create_qp" | "ibv_create_qp_ex" => {
                let What::Call { result, .. } = &moment.record.what else { return };
                self.blamed.remove(&(trace, result.clone()));
            }
            "ibv_get_async_event" => {
                let names = ["qp", "cq"].into_iter().filter_map(|kind| argument(arguments, kind));
                let keys: Vec<(usize, String)> = names.map(|name| (trace, name.to_owned())).collect();
                let Some(cause) = queues::event(self.model, trace, arguments, time) else { return };
                if keys.iter().any(|key| self.follow(key, |follows| follows.events += 1)) {
                    return;
                }
                let finding = self.add(moment, cause);
                for (trace, name) in &keys {
                    let Some(object) = self.model.object(*trace, name, time) else { continue };
                    let queues = ["send_cq", "recv_cq"].into_iter().filter_map(|queue| object.fact(queue, time));
                    let queues = queues.filter_map(|queue| self.model.object(*trace, queue, time)).chain([object]);
                    for queue in queues.filter(|queue| queue.is("cq")) {
                        self.blamed.insert(pair_key(queue), finding);
                        queues::users(self.model, queue, time).iter().for_each(|pair| self.blame(pair, time, finding));
                    }
                    if object.is("qp") {
                        self.blame(object, time, finding);
                    }
                }
            }
            "rdma_get_cm_event" => {
                let id = argument(arguments, "id").and_then(|name| self.model.object(trace, name, time));
                let pair = id.and_then(|id| self.model.object(trace, id.fact("qp", time)?, time));
                let is_end = argument(arguments, "event") == Some("DISCONNECTED");
                if is_end && pair.is_some_and(|pair| self.follow(&pair_key(pair), |follows| follows.events += 1)) {
                    return;
                }
                if let Some(cause) = manager::event(self.model, trace, arguments, time) {
                    let finding = self.add(moment, cause);
                    if let Some(pair) = pair {
                        self.blame(pair, time, finding);
                    }
                }
            }
            "fork" => self.fork(moment, arguments),
            _ => {}
        }
    }

    fn completion(&mut self, moment: Moment<'_>, qp: u32, wr_id: u64, status: &str, is_receive: bool) {
        let (trace, time) = (moment.trace, moment.time);
        let Some(pair) = self.model.pair(trace, qp, time) else { return };
        let is_flushed = status == "WR_FLUSH_ERR";
        let count = |follows: &mut Follows| {
            if is_flushed { follows.flushed += 1 } else { follows.failed += 1 }
        };
        if self.follow(&pair_key(pair), count) {
            return;
        }
        let queue = if is_receive { &self.model.receives(pair, time).receives } else { &pair.sends };
        let posted = queue.iter().find(|posted| posted.done == Some(time) && posted.request.wr_id == wr_id);
        let Some(cause) = connection::failed(self.model, pair, posted, status, time) else { return };
        let finding = self.add(moment, cause);
        self.blame(pair, time, finding);
    }

    /// Later failures of a queue pair and of its peer follow from a finding.
    fn blame(&mut self, pair: &Object<'_>, time: u64, finding: usize) {
        let is_connected = pair.fact("type", time) != Some("UD");
        for pair in [Some(pair), self.model.peer(pair, time)].into_iter().flatten().filter(|_| is_connected) {
            self.blamed.entry(pair_key(pair)).or_insert(finding);
        }
    }

    /// Counts a consequence. Returns whether there is a finding from which it follows.
    fn follow(&mut self, key: &(usize, String), count: impl FnOnce(&mut Follows)) -> bool {
        let finding = self.blamed.get(key).and_then(|index| self.found.get_mut(*index));
        finding.map(|finding| count(&mut finding.follows)).is_some()
    }

    /// Adds a finding, or counts it with the one of its cause. Returns its index.
    fn add(&mut self, Moment { trace, time, record }: Moment<'_>, cause: Cause) -> usize {
        let Cause { text: cause, remedy, certainty, others } = match &record.what {
            What::Call { verb, .. } if record.injected && !is_fault(verb) => {
                Cause::certain(format!("the schedule of faults made {verb} fail"), SCHEDULED)
            }
            What::Refused { .. } if record.injected => {
                Cause::certain("the schedule of faults made a post fail", SCHEDULED)
            }
            _ => cause,
        };
        if let Some(index) = self.found.iter().position(|known| known.trace == trace && known.cause == cause) {
            self.found[index].follows.repeated += 1;
            return index;
        }
        let (injected, follows) = (record.injected, Follows::default());
        let record = record.what.to_string();
        self.found.push(Finding { trace, at: time, record, cause, remedy, certainty, others, injected, follows });
        self.found.len() - 1
    }

    /// Requests that no completion shows as wrong.
    fn look_at_requests(&mut self) {
        let model = self.model;
        for pair in model.objects.iter().filter(|object| object.is("qp")) {
            let dropped =
                pair.sends.iter().filter_map(|posted| Some((posted, queues::dropped_datagram(model, pair, posted)?)));
            for (posted, cause) in dropped.chain(queues::swapped_immediate(pair)) {
                self.add(Moment { trace: pair.trace, time: posted.time, record: posted.record }, cause);
            }
        }
    }

    /// A fork with registered memory, on a kernel that does not copy that memory for the child.
    fn fork(&mut self, moment: Moment<'_>, arguments: &[(String, String)]) {
        let (trace, time) = (moment.trace, moment.time);
        let mut release = argument(arguments, "kernel").unwrap_or_default().split(|sign: char| !sign.is_ascii_digit());
        let mut part = || release.next().and_then(|part| part.parse::<u32>().ok()).unwrap_or(0);
        let is_safe = (part(), part()) >= (5, 12);
        let is_prepared = self.model.moments.iter().any(|before| {
            let is_call =
                matches!(&before.record.what, What::Call { verb, error: None, .. } if verb == "ibv_fork_init");
            is_call && before.trace == trace && before.time <= time
        });
        let is_used = |object: &Object<'_>| object.trace == trace && object.is("mr") && object.is_live(time);
        let regions = self.model.objects.iter().filter(|object| is_used(object)).count();
        if is_safe || is_prepared || regions == 0 {
            return;
        }
        let cause = Cause::hint(
            format!(
                "fork with {regions} registered memory regions, without ibv_fork_init before, on a kernel before 5.12: the \
                 device may go on with the pages of the child"
            ),
            "call ibv_fork_init before the first device is opened, or set RDMAV_FORK_SAFE=1 (the trace does not show it)",
        );
        self.add(moment, cause);
    }
}

fn pair_key(object: &Object<'_>) -> (usize, String) {
    (object.trace, object.name.clone())
}
