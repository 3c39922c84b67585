//! Why an exchange ended.

use std::fmt;

use crate::fabric::Role;
use crate::plan::Contradiction;

/// Why an exchange ended. Each prints as a sentence for the user.
#[derive(Debug)]
pub enum Failure {
    /// Nobody is there.
    Unreachable(String),
    /// The server serves somebody else.
    Busy(String),
    /// Who is there is no stride-perf, or another version of it.
    Stranger(String),
    /// The other side fell silent, went away or said what it must not.
    Broken(String),
    /// What the other side could not do, in its own words.
    Theirs(Role, String),
    /// What this side could not do.
    Ours(anyhow::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(text) | Self::Busy(text) | Self::Stranger(text) | Self::Broken(text) => f.write_str(text),
            Self::Theirs(who, text) => write!(f, "the {}: {text}", name(*who)),
            Self::Ours(error) => write!(f, "{error:#}"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<Contradiction> for Failure {
    fn from(contradiction: Contradiction) -> Self {
        Self::Ours(contradiction.into())
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Ours(error)
    }
}

/// As it stands in sentences.
pub(super) fn name(role: Role) -> &'static str {
    match role {
        Role::Client => "client",
        Role::Server => "server",
    }
}
