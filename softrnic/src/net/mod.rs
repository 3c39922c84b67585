//! The transports to other hosts.

pub(crate) mod iwarp;
pub(crate) mod roce;
