//! Transports to other hosts.

pub(crate) mod iwarp;
