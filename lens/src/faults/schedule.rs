//! The text of a schedule: one fault a line.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::names;

/// Faults, in the order of their lines.
///
/// A line is `WHEN: WHAT`; `#` starts a comment.
///
/// ```
/// # fn main() -> Result<(), rdma_lens::ScheduleError> {
/// let schedule: rdma_lens::Schedule = "
///     after 100 posts on qp 2: complete with RETRY_EXC
///     after 2 calls of ibv_reg_mr: fail with ENOMEM
///     0.1 % of posts: fail with ENOMEM
///     each event ADDR_RESOLVED: report ADDR_ERROR
///     at 2 s: device port down on soft0
/// ".parse()?;
/// assert_eq!(schedule.len(), 5);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule(pub(super) Vec<Fault>);

/// A fault.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fault {
    pub(super) line: usize,
    pub(super) how_often: HowOften,
    pub(super) place: Place,
    pub(super) action: Action,
}

/// Which of the occurrences at its place a fault affects.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum HowOften {
    /// One, after this number of others.
    After(u64),
    Each,
    /// Each with this chance.
    Chance(f64),
}

/// Where a fault occurs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Calls that post send requests.
    Posts(Queue),
    /// Calls that post receives.
    Receives(Queue),
    /// Completions that a device has reported.
    Completions(Queue),
    /// Calls of a verb.
    Calls(String),
    /// Events of the connection manager.
    Events(u32),
    /// The time since the lens was installed.
    Time(Duration),
}

/// Which queue pairs or shared receive queues a fault affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    Any,
    /// A shared receive queue, by its place in the order in which the program made these, from one.
    Shared(u32),
    /// By its place in the order in which the program made queue pairs, from one.
    Nth(u32),
    Numbered(u32),
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// The call returns this errno value, and does nothing.
    Fail(i32),
    /// The queue pair enters the error state, and its oldest request completes with this status.
    Complete(u32),
    /// The completion is held back for this time.
    Delay(Duration),
    /// The program does not get the completion.
    Lose,
    /// A later completion of another queue comes first.
    Reorder,
    /// The connection of the queue pair ends.
    Disconnect,
    /// The event is reported as this one.
    Report(u32),
    /// A command for a device, such as `port down on soft0`.
    Device(String),
}

/// A line of a schedule that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: `{text}`: {reason}")]
#[non_exhaustive]
pub struct ScheduleError {
    /// The number of the line, from one.
    pub line: usize,
    /// The line.
    pub text: String,
    /// What is wrong, and what could stand there.
    pub reason: String,
}

impl Schedule {
    /// The number of faults.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The commands for devices, with their lines.
    pub(super) fn commands(&self) -> impl Iterator<Item = (usize, &str)> {
        self.0.iter().filter_map(|fault| match &fault.action {
            Action::Device(command) => Some((fault.line, command.as_str())),
            _ => None,
        })
    }

    /// The verbs whose calls fail, with their lines.
    pub(crate) fn verbs(&self) -> impl Iterator<Item = (usize, &str)> {
        self.0.iter().filter_map(|fault| match &fault.place {
            Place::Calls(verb) => Some((fault.line, verb.as_str())),
            _ => None,
        })
    }

    /// The commands at fixed times, in their order.
    pub(super) fn times(&self) -> Vec<(usize, Duration, String)> {
        let timed = self.0.iter().filter_map(|fault| match (&fault.place, &fault.action) {
            (Place::Time(time), Action::Device(command)) => Some((fault.line, *time, command.clone())),
            _ => None,
        });
        let mut times: Vec<_> = timed.collect();
        times.sort_by_key(|(_, time, _)| *time);
        times
    }

    /// Whether completions take another course than that of the device: they may be held back.
    pub(super) fn alters_completions(&self) -> bool {
        self.0
            .iter()
            .any(|fault| matches!(fault.place, Place::Completions(_)) || matches!(fault.action, Action::Complete(_)))
    }

    /// Whether completions are held back for a time.
    pub(super) fn delays_completions(&self) -> bool {
        self.0.iter().any(|fault| matches!(fault.action, Action::Delay(_) | Action::Reorder))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromStr for Schedule {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        let lines = text.lines().enumerate().map(|(index, line)| {
            let text = line.split('#').next().unwrap_or("").trim();
            (index + 1, text)
        });
        lines
            .filter(|(_, text)| !text.is_empty())
            .map(|(line, text)| {
                fault(line, text).map_err(|reason| ScheduleError { line, text: text.to_owned(), reason })
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

fn fault(line: usize, text: &str) -> Result<Fault, String> {
    let (when, what) = text.split_once(':').ok_or("expected `WHEN: WHAT`, such as `each post: fail with ENOMEM`")?;
    let mut words = when.split_whitespace().peekable();
    if words.next_if_eq(&"at").is_some() {
        let place = Place::Time(time(words.collect::<Vec<_>>().concat().as_str())?);
        let action = action(what, &place)?;
        return Ok(Fault { line, how_often: HowOften::After(0), place, action });
    }
    let how_often = match words.next() {
        Some("after") => HowOften::After(number(words.next())?),
        Some("each") => HowOften::Each,
        Some(share) => {
            let share = share
                .strip_suffix('%')
                .map_or_else(|| words.next_if_eq(&"%").map(|_| share).ok_or(EXPECTED_OFTEN), Ok)?;
            if words.next() != Some("of") {
                return Err(format!("expected `of` after {share} %"));
            }
            let percent: f64 = share.parse().map_err(|_| format!("`{share}` is not a number"))?;
            if !(0.0..=100.0).contains(&percent) {
                return Err(format!("{share} % is not a share: expected 0 % to 100 %"));
            }
            HowOften::Chance(percent / 100.0)
        }
        None => return Err(EXPECTED_OFTEN.to_owned()),
    };
    let place = match words.next() {
        Some("post" | "posts") => match queue(&mut words)? {
            Queue::Shared(_) => return Err("a shared receive queue gets `receives`, not `posts`".to_owned()),
            queue => Place::Posts(queue),
        },
        Some("receive" | "receives") => Place::Receives(queue(&mut words)?),
        Some("completion" | "completions") => Place::Completions(queue(&mut words)?),
        Some("call" | "calls") => match (words.next(), words.next()) {
            (Some("of"), Some(verb)) if verb.starts_with("ibv_") || verb.starts_with("rdma_") => {
                Place::Calls(verb.to_owned())
            }
            _ => return Err("expected `of` and a verb, such as `calls of ibv_reg_mr`".to_owned()),
        },
        Some("event" | "events") => Place::Events(event(words.next())?),
        other => {
            let other = other.map_or_else(|| "nothing".to_owned(), |other| format!("`{other}`"));
            return Err(format!(
                "expected `posts`, `receives`, `completions`, `calls of VERB` or `events NAME`, found {other}"
            ));
        }
    };
    if let Some(word) = words.next() {
        return Err(format!("`{word}` is too much before the colon"));
    }
    let action = action(what, &place)?;
    Ok(Fault { line, how_often, place, action })
}

const EXPECTED_OFTEN: &str = "expected `after N`, `each`, `N % of` or `at TIME` at the start";

fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.find(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(text.len()));
    let scale = match unit {
        "s" => 1.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        _ => return Err(format!("`{text}` is no time: expected one such as `2 s` or `500 ms`")),
    };
    let time = number.parse().ok().and_then(|number: f64| Duration::try_from_secs_f64(number * scale).ok());
    time.ok_or_else(|| format!("`{text}` is no time: expected one such as `2 s` or `500 ms`"))
}

fn number<T: FromStr>(word: Option<&str>) -> Result<T, String> {
    let word = word.ok_or("expected a number")?;
    word.parse().map_err(|_| format!("`{word}` is not a number"))
}

fn queue<'a>(words: &mut impl Iterator<Item = &'a str>) -> Result<Queue, String> {
    match (words.next(), words.next(), words.next()) {
        (None, ..) => Ok(Queue::Any),
        (Some("on"), Some("qp"), Some(number)) => match number.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).map(Queue::Numbered).map_err(|_| not_a_pair(number)),
            None => nth(number).map(Queue::Nth).ok_or_else(|| not_a_pair(number)),
        },
        (Some("on"), Some("srq"), Some(number)) => nth(number).map(Queue::Shared).ok_or_else(|| {
            format!("`{number}` is no shared receive queue: expected 1 for the first that the program makes")
        }),
        _ => Err("expected `on qp N` or `on srq N`".to_owned()),
    }
}

fn nth(word: &str) -> Option<u32> {
    word.parse().ok().filter(|&nth| nth > 0)
}

fn not_a_pair(word: &str) -> String {
    format!("`{word}` is no queue pair: expected 1 for the first that the program makes, or its number, such as 0x11")
}

fn event(word: Option<&str>) -> Result<u32, String> {
    let word = word.ok_or("expected the name of an event, such as `ADDR_RESOLVED`")?;
    (0..16).find(|&number| names::cm_event(number) == word).ok_or_else(|| {
        let all: Vec<String> = (0..16).map(names::cm_event).collect();
        format!("`{word}` is no event: expected one of {}", all.join(", "))
    })
}

/// Which events can stand for which, and why no others.
const REPORTS: [(&str, &[&str]); 3] = [
    ("ADDR_RESOLVED", &["ADDR_ERROR"]),
    ("ROUTE_RESOLVED", &["ROUTE_ERROR"]),
    ("ESTABLISHED", &["REJECTED", "UNREACHABLE", "CONNECT_ERROR"]),
];

fn action(text: &str, place: &Place) -> Result<Action, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match (words.as_slice(), place) {
        (["fail", "with", name], Place::Posts(_) | Place::Receives(_) | Place::Calls(_)) => {
            let code =
                names::errno_of(name).ok_or_else(|| format!("`{name}` is no error: expected one such as ENOMEM"))?;
            Ok(Action::Fail(code))
        }
        (["complete", "with", name], Place::Posts(_) | Place::Completions(Queue::Shared(_))) => {
            let all = || (1..22).map(names::status).collect::<Vec<_>>().join(", ");
            names::status_of(name)
                .map(Action::Complete)
                .ok_or_else(|| format!("`{name}` is no status of a failure: expected one of {}", all()))
        }
        (["complete", "with", _], Place::Completions(_)) => {
            Err("a completion has its status already: expected `posts`, or `completions on srq N`".to_owned())
        }
        (["delay", number @ ..], Place::Completions(_)) => time(&number.concat()).map(Action::Delay),
        (["lose"], Place::Completions(_)) => Ok(Action::Lose),
        (["reorder"], Place::Completions(_)) => Ok(Action::Reorder),
        (["disconnect"], Place::Posts(_)) => Ok(Action::Disconnect),
        (["device", command @ ..], Place::Posts(_) | Place::Time(_)) if !command.is_empty() => {
            Ok(Action::Device(command.join(" ")))
        }
        (["report", name], Place::Events(from)) => {
            let to = event(Some(name))?;
            let from = names::cm_event(*from);
            let allowed = REPORTS.iter().find(|(known, _)| *known == from).map_or(&[][..], |(_, to)| to);
            if allowed.contains(name) {
                return Ok(Action::Report(to));
            }
            Err(match allowed {
                [] => format!("{from} cannot be changed at this border without the peer's knowledge"),
                _ => format!("{from} can only be reported as {}", allowed.join(", ")),
            })
        }
        _ => Err(format!(
            "`{}` cannot happen there; posts: `fail with ERRNO`, `complete with STATUS`, `disconnect`, `device COMMAND`; \
             receives and calls: `fail with ERRNO`; completions: `delay TIME`, `lose`, `reorder`, those of an srq also \
             `complete with STATUS`; events: `report EVENT`; times: `device COMMAND`",
            text.trim()
        )),
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", self.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Fault {
        line.parse::<Schedule>().unwrap().0.remove(0)
    }

    #[test]
    fn lines_are_read() {
        let fault = parsed("after 100 posts on qp 2: complete with RETRY_EXC # as when the cable is pulled");
        assert_eq!((fault.how_often, fault.place), (HowOften::After(100), Place::Posts(Queue::Nth(2))));
        assert_eq!(fault.action, Action::Complete(12));
        assert_eq!(parsed("each receive on qp 0x11: fail with EINVAL").place, Place::Receives(Queue::Numbered(0x11)));
        for share in ["50% of posts: disconnect", "50 % of posts: disconnect"] {
            assert_eq!(parsed(share).how_often, HowOften::Chance(0.5));
        }
        assert_eq!(parsed("each event ESTABLISHED: report REJECTED").action, Action::Report(8));
        let fault = parsed("at 500 ms: device port down on soft0");
        assert_eq!(fault.place, Place::Time(Duration::from_millis(500)));
        assert_eq!(fault.action, Action::Device("port down on soft0".to_owned()));
        assert_eq!(parsed("at 2s: device x").place, Place::Time(Duration::from_secs(2)));
        let fault = parsed("after 100 completions on qp 2: delay 5 ms");
        assert_eq!(fault.place, Place::Completions(Queue::Nth(2)));
        assert_eq!(fault.action, Action::Delay(Duration::from_millis(5)));
        assert_eq!(parsed("each completion: lose").action, Action::Lose);
        assert_eq!(parsed("5 % of completions: reorder").action, Action::Reorder);
        assert_eq!(parsed("each receive on srq 1: fail with ENOMEM").place, Place::Receives(Queue::Shared(1)));
        assert_eq!(parsed("each completion on srq 1: complete with LOC_PROT").action, Action::Complete(4));
        assert!("\n# nothing\n".parse::<Schedule>().unwrap().is_empty());
    }

    #[test]
    fn errors_name_the_line_the_word_and_what_could_stand_there() {
        for (line, parts) in [
            ("each post", ["each post", "WHEN: WHAT"]),
            ("sometimes post: disconnect", ["sometimes", "after N"]),
            ("after x posts: disconnect", ["`x`", "number"]),
            ("101 % of posts: disconnect", ["101", "100 %"]),
            ("each packet: disconnect", ["`packet`", "posts"]),
            ("each post on qp zero: disconnect", ["`zero`", "0x11"]),
            ("each post: fail with ENOFUN", ["ENOFUN", "ENOMEM"]),
            ("each post: complete with SUCCESS", ["SUCCESS", "RETRY_EXC_ERR"]),
            ("each call of reg_mr: fail with ENOMEM", ["calls", "ibv_reg_mr"]),
            ("each event DISCONNECTED: report ESTABLISHED", ["DISCONNECTED", "cannot"]),
            ("each event ADDR_RESOLVED: report REJECTED", ["ADDR_RESOLVED", "ADDR_ERROR"]),
            ("each receive: complete with RETRY_EXC", ["cannot happen", "fail with ERRNO"]),
            ("at 2 h: device port down", ["`2h`", "500 ms"]),
            ("at -1 s: device port down", ["`-1s`", "time"]),
            ("at 1 s: disconnect", ["cannot happen", "device COMMAND"]),
            ("each post now: disconnect", ["on qp", "expected"]),
            ("each post on srq 1: disconnect", ["shared", "`receives`"]),
            ("each receive on srq 0x1: fail with ENOMEM", ["`0x1`", "shared receive queue"]),
            ("each completion: complete with LOC_PROT", ["status", "on srq N"]),
            ("each completion: delay 5", ["`5`", "500 ms"]),
            ("each post: lose", ["cannot happen", "completions"]),
        ] {
            let error = format!("\n{line}").parse::<Schedule>().unwrap_err();
            assert_eq!((error.line, error.text.as_str()), (2, line));
            let text = error.to_string();
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
    }
}
