//! What the traces state of objects and requests: what they were made with, how they changed, and when.

use std::collections::HashMap;
use std::fmt;

use super::read::Trace;
use crate::record::{Record, Request, What};

/// A record at its time on the clock that all traces share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment<'a> {
    pub(super) trace: usize,
    /// When it happened, since the start of the first trace.
    pub(super) time: u64,
    pub(super) record: &'a Record,
}

/// An object of verbs, such as `qp 0x11` or `mr 0x1f2`.
#[derive(Debug)]
pub(super) struct Object<'a> {
    pub(super) trace: usize,
    /// Its kind and number, as the trace writes it.
    pub(super) name: String,
    pub(super) made: u64,
    pub(super) gone: Option<u64>,
    /// Its attributes, with the time since which they are so.
    facts: Vec<(u64, String, String)>,
    pub(super) sends: Vec<Posted<'a>>,
    /// The requests of the receive queue; of a queue pair without a shared one, or of a shared one.
    pub(super) receives: Vec<Posted<'a>>,
    /// The first request of both that may be open.
    first_open: [usize; 2],
}

/// A request that was posted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posted<'a> {
    pub(super) time: u64,
    pub(super) record: &'a Record,
    pub(super) request: &'a Request,
    /// When it completed, also without a completion of its own.
    pub(super) done: Option<u64>,
    pub(super) is_refused: bool,
    /// The status of its completion, if it failed.
    pub(super) failure: Option<&'a str>,
}

/// A process of a trace.
#[derive(Debug)]
pub(super) struct Process<'a> {
    trace: usize,
    number: u32,
    program: &'a str,
    /// When the trace ended in order.
    end: Option<u64>,
}

impl Process<'_> {
    pub(super) fn has_end(&self) -> bool {
        self.end.is_some()
    }
}

impl fmt::Display for Process<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.program.rsplit('/').next().unwrap_or_default();
        write!(f, "process {} ({name}) ", self.number)?;
        match self.end {
            Some(_) => write!(f, "had ended"),
            None => write!(f, "ended without an end record: killed or crashed"),
        }
    }
}

/// A GID that the program has queried.
#[derive(Debug)]
struct Queried<'a> {
    trace: usize,
    time: u64,
    context: &'a str,
    index: &'a str,
    gid: &'a str,
}

#[derive(Debug, Default)]
pub(super) struct Model<'a> {
    /// All records in the order of their times.
    pub(super) moments: Vec<Moment<'a>>,
    pub(super) objects: Vec<Object<'a>>,
    /// The latest object of a name in a trace.
    latest: HashMap<(usize, String), usize>,
    processes: Vec<Process<'a>>,
    gids: Vec<Queried<'a>>,
}

/// How far the clocks of two hosts may differ, in nanoseconds.
const SKEW: u64 = 1_000_000_000;

/// The value of an argument.
pub(super) fn argument<'a>(arguments: &'a [(String, String)], name: &str) -> Option<&'a str> {
    arguments.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
}

/// A number, decimal or with `0x`.
pub(super) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

pub(super) fn pair_name(number: u32) -> String {
    format!("qp {number:#x}")
}

/// The flag of `ibv_rereg_mr` that changes an attribute of the region.
fn flag_of(name: &str) -> u64 {
    match name {
        "addr" | "length" => 1,
        "pd" => 2,
        "access" => 4,
        _ => 0,
    }
}

/// Whether a call of this verb ends an object that it names.
pub(super) fn destroys(verb: &str) -> bool {
    ["destroy", "dealloc", "dereg", "close"].iter().any(|part| verb.contains(part))
}

impl Object<'_> {
    /// The latest value of an attribute at a time.
    pub(super) fn fact(&self, name: &str, time: u64) -> Option<&str> {
        self.facts.iter().rev().find(|(since, known, _)| *since <= time && known == name).map(|(_, _, value)| &**value)
    }

    pub(super) fn number(&self, name: &str, time: u64) -> Option<u64> {
        number(self.fact(name, time)?)
    }

    /// The state of a queue pair.
    pub(super) fn state(&self, time: u64) -> &str {
        self.fact("state", time).unwrap_or("RESET")
    }

    pub(super) fn is_live(&self, time: u64) -> bool {
        self.made <= time && self.gone.is_none_or(|gone| gone > time)
    }

    /// The number in the name.
    pub(super) fn id(&self) -> u64 {
        self.name.split(' ').nth(1).and_then(number).unwrap_or(0)
    }

    pub(super) fn is(&self, kind: &str) -> bool {
        self.name.strip_prefix(kind).is_some_and(|rest| rest.starts_with(' '))
    }

    /// Whether accesses of a kind are allowed.
    pub(super) fn allows(&self, right: &str, time: u64) -> Option<bool> {
        Some(self.fact("access", time)?.split('|').any(|known| known == right))
    }

    /// When an attribute got a value first.
    pub(super) fn since(&self, name: &str, value: &str) -> Option<u64> {
        self.facts.iter().find(|(_, known, had)| known == name && had == value).map(|(since, _, _)| *since)
    }

    /// Whether an attribute ever had a value.
    pub(super) fn had(&self, name: &str, value: &str) -> bool {
        self.since(name, value).is_some()
    }

    fn set(&mut self, time: u64, name: &str, value: &str) {
        self.facts.push((time, name.to_owned(), value.to_owned()));
    }
}

impl<'a> Posted<'a> {
    fn new(time: u64, record: &'a Record, request: &'a Request) -> Self {
        Self { time, record, request, done: None, is_refused: false, failure: None }
    }

    /// Whether the device had it at a time, and had not completed it.
    pub(super) fn is_open(&self, time: u64) -> bool {
        !self.is_refused && self.time <= time && self.done.is_none_or(|done| done > time)
    }
}

impl<'a> Model<'a> {
    pub(super) fn new(traces: &'a [Trace]) -> Self {
        let origins: Vec<u64> = traces.iter().map(Trace::origin).collect();
        let first = origins.iter().copied().min().unwrap_or(0);
        let mut model = Self::default();
        for (trace, (of, origin)) in traces.iter().zip(&origins).enumerate() {
            model.moments.extend(of.records.iter().map(|record| Moment {
                trace,
                time: record.at + (origin - first),
                record,
            }));
        }
        model.moments.sort_by_key(|moment| moment.time);
        for index in 0..model.moments.len() {
            model.apply(model.moments[index]);
        }
        model
    }

    /// The object of a name that was the latest at a time.
    pub(super) fn object(&self, trace: usize, name: &str, time: u64) -> Option<&Object<'a>> {
        self.objects.iter().rev().find(|object| object.trace == trace && object.name == name && object.made <= time)
    }

    pub(super) fn pair(&self, trace: usize, number: u32, time: u64) -> Option<&Object<'a>> {
        self.object(trace, &pair_name(number), time)
    }

    /// The queue pair at the other end of a connection, if a trace has it.
    pub(super) fn peer(&self, pair: &Object<'_>, time: u64) -> Option<&Object<'a>> {
        let number = pair.number("dest_qp", time)?;
        let is_to_itself = pair.fact("dgid", time).is_some() && pair.fact("dgid", time) == pair.fact("sgid", time);
        let candidates = self.objects.iter().filter(|peer| {
            let back = peer.number("dest_qp", time);
            // Hosts use the numbers of each other, so a queue pair of this trace needs more than the number.
            let is_likely = back == Some(pair.id()) || peer.trace != pair.trace || back.is_none() && is_to_itself;
            peer.is("qp") && peer.id() == number && peer.made <= time && is_likely && !std::ptr::eq(*peer, pair)
        });
        candidates.max_by_key(|peer| (peer.number("dest_qp", time) == Some(pair.id()), peer.is_live(time), peer.made))
    }

    /// The receive of a queue pair that failed with a status, and when.
    pub(super) fn failed_receive<'s>(&'s self, pair: &'s Object<'a>, status: &str) -> Option<(u64, &'s Posted<'a>)> {
        let queue = self.receives(pair, u64::MAX);
        queue.receives.iter().find_map(|posted| Some((posted.done?, posted)).filter(|_| posted.failure == Some(status)))
    }

    /// The identifiers of the connection manager that had a queue pair.
    pub(super) fn identifiers<'s>(&'s self, pair: &'s Object<'_>) -> impl Iterator<Item = &'s Object<'a>> {
        self.objects.iter().filter(|id| id.trace == pair.trace && id.is("id") && id.had("qp", &pair.name))
    }

    /// Whether the connection of a queue pair ended in an event of the connection manager.
    pub(super) fn is_disconnected(&self, pair: &Object<'_>) -> bool {
        let ends = ["DISCONNECTED", "TIMEWAIT_EXIT", "DEVICE_REMOVAL"];
        self.identifiers(pair).any(|id| ends.iter().any(|event| id.had("event", event)))
    }

    /// The process of a trace that was gone at a time: one that left no end record, or else one that ended.
    pub(super) fn gone(&self, trace: usize, time: u64) -> Option<&Process<'a>> {
        let last = self.moments.iter().rev().find(|moment| moment.trace == trace)?.time;
        let is_gone = |process: &&Process<'_>| process.end.unwrap_or(last) <= time.saturating_add(SKEW);
        let gone = self.processes.iter().filter(|process| process.trace == trace).filter(is_gone);
        gone.max_by_key(|process| !process.has_end())
    }

    /// The processes that left no end record, with their traces.
    pub(super) fn killed(&self) -> impl Iterator<Item = (usize, &Process<'a>)> {
        self.processes.iter().filter(|process| !process.has_end()).map(|process| (process.trace, process))
    }

    /// The device of a queue pair.
    fn context<'s>(&'s self, pair: &'s Object<'_>, time: u64) -> Option<&'s str> {
        let of_domain = || self.object(pair.trace, pair.fact("pd", time)?, time)?.fact("context", time);
        pair.fact("context", time).or_else(of_domain)
    }

    /// The indices and the GIDs that the program has queried of the device of a queue pair.
    pub(super) fn queried(&self, pair: &Object<'_>, time: u64) -> Vec<(&str, &str)> {
        let context = self.context(pair, time);
        let is_its =
            |known: &&Queried<'_>| known.trace == pair.trace && known.time <= time && context == Some(known.context);
        self.gids.iter().filter(is_its).map(|known| (known.index, known.gid)).collect()
    }

    /// The queue of receives that a queue pair consumes.
    pub(super) fn receives<'s>(&'s self, pair: &'s Object<'a>, time: u64) -> &'s Object<'a> {
        pair.fact("srq", time).and_then(|name| self.object(pair.trace, name, time)).unwrap_or(pair)
    }

    fn latest(&mut self, trace: usize, name: &str) -> Option<&mut Object<'a>> {
        let index = *self.latest.get(&(trace, name.to_owned()))?;
        self.objects.get_mut(index)
    }

    fn make(&mut self, trace: usize, name: &str, time: u64) -> &mut Object<'a> {
        let key = (trace, name.to_owned());
        let index = *self.latest.entry(key).insert_entry(self.objects.len()).get();
        self.objects.push(Object {
            trace,
            name: name.to_owned(),
            made: time,
            gone: None,
            facts: Vec::new(),
            sends: Vec::new(),
            receives: Vec::new(),
            first_open: [0; 2],
        });
        &mut self.objects[index]
    }

    fn apply(&mut self, Moment { trace, time, record }: Moment<'a>) {
        match &record.what {
            What::Call { verb, arguments, result, error: None, .. } => {
                self.call(trace, time, verb, arguments, result);
            }
            What::Send(request) => {
                let name = pair_name(request.qp);
                if self.latest(trace, &name).is_none() {
                    self.make(trace, &name, time);
                }
                if let Some(pair) = self.latest(trace, &name) {
                    pair.sends.push(Posted::new(time, record, request));
                }
            }
            What::Receive(request) => {
                let name = request.srq.map_or_else(|| pair_name(request.qp), |srq| format!("srq {srq}"));
                if let Some(queue) = self.latest(trace, &name) {
                    queue.receives.push(Posted::new(time, record, request));
                }
            }
            What::Refused { qp, requests, is_receive, .. } => {
                let Some(pair) = self.latest(trace, &pair_name(*qp)) else { return };
                // Receives that a fault refused are not in the trace.
                let (queue, count) = match is_receive {
                    true if record.injected => return,
                    true => (&mut pair.receives, 1),
                    false => (&mut pair.sends, *requests),
                };
                queue.iter_mut().rev().take(count as usize).for_each(|posted| posted.is_refused = true);
            }
            What::Completion { qp, wr_id, status, opcode, .. } => {
                self.completion(trace, time, *qp, *wr_id, status, opcode.starts_with("RECV"));
            }
            What::Start { program, process, .. } => {
                self.processes.push(Process { trace, number: *process, program, end: None });
            }
            What::End { process } => {
                let is_it = |known: &&mut Process<'_>| known.trace == trace && known.number == *process;
                if let Some(known) = self.processes.iter_mut().rev().find(is_it) {
                    known.end = Some(time);
                }
            }
            _ => {}
        }
    }

    fn call(&mut self, trace: usize, time: u64, verb: &str, arguments: &'a [(String, String)], result: &str) {
        if let "ibv_query_gid" | "ibv_query_gid_ex" = verb {
            let index = argument(arguments, "index").or_else(|| argument(arguments, "gid_index"));
            let parts = (argument(arguments, "context"), index, argument(arguments, "gid"));
            if let (Some(context), Some(index), Some(gid)) = parts {
                self.gids.push(Queried { trace, time, context, index, gid });
            }
            return;
        }
        if destroys(verb) {
            // The object is the first argument; a queue pair of librdmacm is that of an identifier.
            let Some((_, name)) = arguments.first() else { return };
            let pair = self.latest(trace, name).and_then(|id| id.fact("qp", time).map(str::to_owned));
            let gone = if verb == "rdma_destroy_qp" { pair } else { Some(name.clone()) };
            if let Some(object) = gone.and_then(|gone| self.latest(trace, &gone)) {
                object.gone = Some(time);
            }
            return;
        }
        if verb == "rdma_get_cm_event" {
            return self.event(trace, time, arguments);
        }
        let made = match verb {
            "rdma_create_qp" | "rdma_create_qp_ex" => argument(arguments, "qp").map(str::to_owned),
            "rdma_create_id" => argument(arguments, "id").map(str::to_owned),
            _ if verb.starts_with("ibv_") && !verb.contains("qp_to_qp") && result.contains(' ') => {
                // `mr 0x1f2 rkey 0x1f3` is the region `mr 0x1f2`.
                Some(result.split(' ').take(2).collect::<Vec<_>>().join(" "))
            }
            _ => None,
        };
        if let Some(name) = made {
            let object = self.make(trace, &name, time);
            for (name, value) in arguments {
                object.set(time, name, value);
            }
            if let Some((_, rkey)) = result.split_once(" rkey ") {
                object.set(time, "rkey", rkey);
            }
            if verb.starts_with("rdma_create_qp") {
                object.set(time, "state", "INIT");
                let id = argument(arguments, "id").unwrap_or_default();
                let peer = self.latest(trace, id).and_then(|id| {
                    id.set(time, "qp", &name);
                    id.fact("dest_qp", time).map(str::to_owned)
                });
                if let (Some(peer), Some(pair)) = (peer, self.latest(trace, &name)) {
                    pair.set(time, "dest_qp", &peer);
                }
            }
            return;
        }
        // Other calls change the object that they name first.
        let Some((_, name)) =
            arguments.first().filter(|(name, _)| matches!(&**name, "qp" | "id" | "srq" | "cq" | "mr"))
        else {
            return;
        };
        let Some(object) = self.latest(trace, name) else { return };
        let is_query = verb.contains("query");
        let flags = argument(arguments, "flags").filter(|_| verb == "ibv_rereg_mr").and_then(number);
        let is_changed = |name: &str| flags.is_none_or(|flags| flags & flag_of(name) != 0);
        for (name, value) in arguments.iter().skip(1).filter(|(name, _)| !is_query && is_changed(name)) {
            let value = value.split_once('→').filter(|_| name == "state").map_or(&**value, |(_, to)| to);
            object.set(time, name, value);
        }
        if verb == "rdma_disconnect" {
            object.set(time, "call", verb);
            if let Some(pair) = object.fact("qp", time).map(str::to_owned)
                && let Some(pair) = self.latest(trace, &pair)
            {
                pair.set(time, "state", "ERR");
            }
        }
    }

    /// An event of the connection manager moves the queue pair of its identifier.
    fn event(&mut self, trace: usize, time: u64, arguments: &[(String, String)]) {
        let (Some(event), Some(id)) = (argument(arguments, "event"), argument(arguments, "id")) else { return };
        if event == "CONNECT_REQUEST" {
            self.make(trace, id, time);
        }
        let Some(id) = self.latest(trace, id) else { return };
        id.set(time, "event", event);
        let peer = argument(arguments, "dest_qp");
        if let Some(peer) = peer {
            id.set(time, "dest_qp", peer);
        }
        let state = match event {
            "ESTABLISHED" => Some("RTS"),
            "DISCONNECTED" => Some("ERR"),
            _ => None,
        };
        let Some(pair) = id.fact("qp", time).map(str::to_owned) else { return };
        let Some(pair) = self.latest(trace, &pair) else { return };
        for (name, value) in [("state", state), ("dest_qp", peer)] {
            if let Some(value) = value {
                pair.set(time, name, value);
            }
        }
    }

    fn completion(&mut self, trace: usize, time: u64, qp: u32, wr_id: u64, status: &'a str, is_receive: bool) {
        let Some(pair) = self.latest(trace, &pair_name(qp)) else { return };
        let is_connected = pair.fact("type", time).is_none_or(|service| service != "UD");
        if status != "SUCCESS" && is_connected && pair.state(time) != "ERR" {
            pair.set(time, "state", "ERR");
        }
        let shared = pair.fact("srq", time).filter(|_| is_receive).map(str::to_owned);
        let shared = shared.and_then(|name| self.latest.get(&(trace, name)).copied());
        let index = shared.or_else(|| self.latest.get(&(trace, pair_name(qp))).copied());
        let Some(object) = index.and_then(|index| self.objects.get_mut(index)) else { return };
        let queue = if is_receive { &mut object.receives } else { &mut object.sends };
        let start = &mut object.first_open[usize::from(is_receive)];
        let is_it = |posted: &Posted<'_>| posted.is_open(time) && posted.request.wr_id == wr_id;
        let Some(found) = queue[*start..].iter().position(is_it) else { return };
        let found = *start + found;
        // The send requests before it are done too.
        let first = if is_receive { found } else { *start };
        queue[first..=found]
            .iter_mut()
            .filter(|posted| posted.is_open(time))
            .for_each(|posted| posted.done = Some(time));
        queue[found].failure = Some(status).filter(|status| *status != "SUCCESS");
        *start += queue[*start..].iter().take_while(|posted| !posted.is_open(time)).count();
    }
}
