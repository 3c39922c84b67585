//! Findings, and the report that lists them.

use std::fmt;

/// How certain a cause is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Certainty {
    /// The traces contain the contradiction.
    Certain,
    /// What the traces contain fits, and other causes are possible.
    Likely,
    /// Nothing failed for this reason in the traces, or it depends on what they cannot contain.
    Hint,
}

/// Something that went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The trace, by its place in the list.
    pub trace: usize,
    /// Nanoseconds since the start of the first trace, by the clocks of the hosts.
    pub at: u64,
    /// The record that shows it, as text.
    pub record: String,
    /// The cause.
    pub cause: String,
    /// What to do.
    pub remedy: String,
    /// How certain the cause is.
    pub certainty: Certainty,
    /// Other causes that fit, in the order of their likelihood.
    pub others: Vec<String>,
    /// Whether a schedule of faults caused it.
    pub injected: bool,
    /// What follows from it.
    pub(super) follows: Follows,
}

/// What follows from a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Follows {
    pub(super) flushed: u64,
    pub(super) failed: u64,
    pub(super) events: u64,
    pub(super) repeated: u64,
}

/// The findings of [`explain`](super::explain), what went wrong first at the front.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The findings. Hints are at the end.
    pub findings: Vec<Finding>,
    /// What the traces lack.
    pub notes: Vec<String>,
}

/// A cause with its remedy, before it belongs to a record.
#[derive(Debug)]
pub(super) struct Cause {
    pub(super) text: String,
    pub(super) remedy: String,
    pub(super) certainty: Certainty,
    pub(super) others: Vec<String>,
}

impl Cause {
    pub(super) fn certain(text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { text: text.into(), remedy: remedy.into(), certainty: Certainty::Certain, others: Vec::new() }
    }

    pub(super) fn likely(text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { certainty: Certainty::Likely, ..Self::certain(text, remedy) }
    }

    pub(super) fn hint(text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { certainty: Certainty::Hint, ..Self::certain(text, remedy) }
    }

    /// With other causes that fit.
    pub(super) fn or(mut self, others: &[&str]) -> Self {
        self.others.extend(others.iter().map(|&other| other.to_owned()));
        self
    }
}

impl Finding {
    /// What follows from it, as one line; empty if nothing does.
    pub fn consequences(&self) -> String {
        let Follows { flushed, failed, events, repeated } = self.follows;
        let parts: Vec<String> =
            [(flushed, "flushed request"), (failed, "more failure"), (events, "event"), (repeated, "repetition")]
                .iter()
                .filter(|(count, _)| *count > 0)
                .map(|(count, name)| format!("{count} {name}{}", if *count == 1 { "" } else { "s" }))
                .collect();
        match (parts.as_slice(), flushed + failed + events + repeated) {
            ([], _) => String::new(),
            (_, 1) => format!("{} follows from it", parts[0]),
            _ => format!("{} follow from it", parts.join(", ")),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let injected = if self.injected { " (injected by the lens)" } else { "" };
        let at = self.at / 1000;
        writeln!(f, "{}.{:06} trace {}: {}{injected}", at / 1_000_000, at % 1_000_000, self.trace + 1, self.record)?;
        let certainty = match self.certainty {
            Certainty::Certain => "cause",
            Certainty::Likely => "likely cause",
            Certainty::Hint => "hint",
        };
        writeln!(f, "  {certainty}: {}", self.cause)?;
        for other in &self.others {
            writeln!(f, "  or: {other}")?;
        }
        write!(f, "  remedy: {}", self.remedy)?;
        match self.consequences().as_str() {
            "" => Ok(()),
            consequences => write!(f, "\n  {consequences}"),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.findings.is_empty() {
            writeln!(f, "nothing went wrong in what the traces contain")?;
        }
        for (index, finding) in self.findings.iter().enumerate() {
            writeln!(f, "{}. {finding}", index + 1)?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}
