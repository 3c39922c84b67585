//! Asynchronous events: what a device reports of itself, its ports, and the objects made on it.

mod registry;

pub(crate) use self::registry::AffiliatedObjects;
