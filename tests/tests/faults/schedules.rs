//! The schedules: every call of a job refused once, and the faults of posts, completions, connections and events.

use std::time::{Duration, Instant};

use rdma_lens::Summary;

use crate::harness::{Ended, Left, Seen, Turn};

/// The seed of the faults by chance.
const SEED: u64 = 1;
/// What takes longer is printed.
const SLOW: Duration = Duration::from_millis(1_500);

/// Every place where a job calls a verb is refused, but of calls that are made often only the first ones.
const PLACES: u64 = 6;

/// The posts at which a fault happens. The first ones are those of handshakes.
const POSTS: [u64; 6] = [0, 1, 2, 5, 13, 40];

const STATUSES: [&str; 9] =
    ["RETRY_EXC", "RNR_RETRY_EXC", "REM_ACCESS", "REM_OP", "LOC_PROT", "LOC_LEN", "FATAL", "GENERAL", "RESP_TIMEOUT"];

/// Connections by address cannot be made any more.
const LOST_EVENTS: &str = "each call of rdma_get_cm_event: fail with ENOMEM";

const REPORTS: [(&str, &str); 5] = [
    ("ADDR_RESOLVED", "ADDR_ERROR"),
    ("ROUTE_RESOLVED", "ROUTE_ERROR"),
    ("ESTABLISHED", "REJECTED"),
    ("ESTABLISHED", "UNREACHABLE"),
    ("ESTABLISHED", "CONNECT_ERROR"),
];

/// Whether `verb` releases something: a program cannot do much about a failure.
fn releases(verb: &str) -> bool {
    ["destroy", "dealloc", "dereg", "close", "free"].iter().any(|part| verb.contains(part))
}

/// Without `FAULTS_ONLY`, the sweep takes seconds: it leaves out faults that last, under which programs wait for their time
/// limits.
fn is_chosen(schedule: &str) -> bool {
    let is_short = || {
        let (often, place) = schedule.split_once(' ').unwrap();
        let nth = place.split(' ').next().and_then(|nth| nth.parse::<u64>().ok());
        let is_usual =
            !["EAGAIN", "REM_OP", "LOC_LEN", "GENERAL", "RNR", "RESP"].iter().any(|rest| schedule.contains(rest));
        schedule == LOST_EVENTS || is_usual && often == "after" && nth.is_some_and(|nth| [0, 1, 13].contains(&nth))
    };
    std::env::var("FAULTS_ONLY").map_or_else(|_| is_short(), |text| schedule.contains(&text))
}

/// Refuses each call that the job makes without faults.
fn calls(without: &Summary) -> Vec<(String, String)> {
    let mut all = Vec::new();
    // An event that is not acknowledged makes its identifier wait in librdmacm, so a program cannot handle that failure.
    for verb in without.verbs.iter().filter(|verb| rdma_lens::can_fail(verb.verb) && !verb.verb.contains("_ack_")) {
        let code = if verb.verb.starts_with("ibv_destroy") { "EBUSY" } else { "ENOMEM" };
        let times = (0..verb.calls.min(PLACES)).map(|n| format!("after {n} calls of {}: fail with {code}", verb.verb));
        let each = std::iter::once(format!("each call of {}: fail with {code}", verb.verb));
        all.extend(times.chain(each).map(|schedule| (format!("{} refused", verb.verb), schedule)));
    }
    all
}

fn traffic() -> Vec<(String, String)> {
    let mut all = Vec::new();
    for kind in ["post", "receive"] {
        for code in ["ENOMEM", "EAGAIN", "EINVAL"] {
            let once = POSTS.iter().map(|n| format!("after {n} {kind}s: fail with {code}"));
            let more = ["each", "20 % of"].map(|often| format!("{often} {kind}: fail with {code}"));
            all.extend(once.chain(more).map(|schedule| (format!("{kind} refused"), schedule)));
        }
    }
    for status in STATUSES {
        let once = POSTS.iter().map(|n| format!("after {n} posts: complete with {status}"));
        let more = ["each", "2 % of"].map(|often| format!("{often} posts: complete with {status}"));
        all.extend(once.chain(more).map(|schedule| (format!("completion {status}"), schedule)));
    }
    let once = POSTS.iter().map(|n| format!("after {n} posts: disconnect"));
    let more = ["each", "2 % of"].map(|often| format!("{often} posts: disconnect"));
    all.extend(once.chain(more).map(|schedule| ("disconnect".to_owned(), schedule)));
    for (event, report) in REPORTS {
        let often = ["after 0", "after 1", "after 2", "each"];
        let lines = often.map(|often| format!("{often} event {event}: report {report}"));
        all.extend(lines.map(|schedule| (format!("{event} is {report}"), schedule)));
    }
    all
}

/// Runs a job under all schedules, with a seed for the faults by chance. `must_pass` chooses the schedules under which it
/// has to succeed.
pub(crate) fn sweep(name: &str, job: fn() -> Ended, left: Left, must_pass: fn(&str) -> bool) {
    let turn = Turn::take();
    // The first job starts threads that stay.
    turn.run("", SEED, job, Left::Anything).unwrap().0.unwrap();
    let (ended, without) = turn.run("", SEED, job, left).unwrap();
    ended.unwrap();
    let (mut seen, mut problems) = (Seen::default(), Vec::new());
    let all = calls(&without).into_iter().chain(traffic());
    for (class, schedule) in all.filter(|(_, schedule)| is_chosen(schedule)) {
        let started = Instant::now();
        // What was not released is left.
        let left = if releases(&class) { Left::Anything } else { left };
        match turn.run(&schedule, SEED, job, left) {
            Ok((ended, _)) => {
                if started.elapsed() > SLOW {
                    println!("{:?} under `{schedule}`: {ended:?}", started.elapsed());
                }
                if ended.is_err() && must_pass(&schedule) {
                    problems.push(format!("under `{schedule}`: {ended:?}"));
                }
                seen.add(&class, &ended);
            }
            Err(problem) => {
                println!("{problem}");
                problems.push(problem);
            }
        }
    }
    seen.print(name);
    assert!(problems.is_empty(), "{name}:\n{}", problems.join("\n"));
}

/// Faults that do not stop a program that connects again, or uses TCP.
pub(crate) fn is_survived(schedule: &str) -> bool {
    schedule.starts_with("after") || schedule == LOST_EVENTS
}

/// A program that does not connect again ends with an error.
pub(crate) fn never(_: &str) -> bool {
    false
}

/// A schedule of one to three faults, from a seed. Calls that release objects are not refused.
pub(crate) fn random(seed: u64, without: &Summary) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d;
    let mut below = |limit: usize| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) as usize % limit
    };
    let is_refused = |verb: &str| rdma_lens::can_fail(verb) && !releases(verb) && !verb.contains("_ack_");
    let verbs: Vec<_> = without.verbs.iter().filter(|verb| is_refused(verb.verb)).collect();
    let mut lines = String::new();
    for _ in 0..=below(3) {
        let often = |what: &str, most: usize, below: &mut dyn FnMut(usize) -> usize| match below(3) {
            0 => format!("{} % of {what}", [1, 3, 10][below(3)]),
            _ => format!("after {} {what}", below(most)),
        };
        let code = ["ENOMEM", "EAGAIN", "EINVAL", "EMFILE"][below(4)];
        let line = match below(6) {
            0 => {
                let verb = verbs[below(verbs.len())];
                let place = often(&format!("calls of {}", verb.verb), verb.calls.min(100) as usize, &mut below);
                format!("{place}: fail with {code}")
            }
            1 => format!("{}: fail with {code}", often("posts", 60, &mut below)),
            2 => format!("{}: fail with {code}", often("receives", 300, &mut below)),
            3 => format!("{}: complete with {}", often("posts", 60, &mut below), STATUSES[below(STATUSES.len())]),
            4 => format!("{}: disconnect", often("posts", 60, &mut below)),
            _ => {
                let (event, report) = REPORTS[below(REPORTS.len())];
                format!("{}: report {report}", often(&format!("events {event}"), 4, &mut below))
            }
        };
        lines.push_str(&line);
        lines.push('\n');
    }
    lines
}
