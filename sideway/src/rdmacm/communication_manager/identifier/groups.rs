//! The multicast groups of an identifier that the library tracks.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The groups. This list always equals the list of the library. It is written only while no other thread makes a call
/// on the identifier or takes an event.
#[derive(Debug, Default)]
pub(super) struct Groups(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last_key: usize,
    joined: Vec<Group>,
}

/// A group, with the library's parameters for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// The key of the group's events.
    key: usize,
    /// The group's address, by which the library finds the group.
    pub(super) address: SocketAddr,
    /// Whether an event reported a failed join or the loss of the group. The library still tracks such a group.
    pub(super) is_lost: bool,
}

impl Groups {
    /// Returns a key that no group of the identifier has had before. It is never 0.
    pub(super) fn next_key(&self) -> usize {
        let mut state = self.lock();
        state.last_key = state.last_key.wrapping_add(1).max(1);
        state.last_key
    }

    /// Adds a group that the library tracks.
    pub(super) fn insert(&self, key: usize, address: SocketAddr) {
        self.lock().joined.push(Group { key, address, is_lost: false });
    }

    /// Returns the group with this address. The port is ignored.
    pub(super) fn find(&self, address: SocketAddr) -> Option<Group> {
        self.lock().joined.iter().find(|group| group.address.ip() == address.ip()).copied()
    }

    /// Removes a group before the library removes it.
    pub(super) fn remove(&self, group: Group) {
        self.lock().joined.retain(|other| other.key != group.key);
    }

    /// Returns all groups.
    pub(super) fn all(&self) -> Vec<Group> {
        self.lock().joined.clone()
    }

    /// Whether there are no groups.
    pub(super) fn is_empty(&mut self) -> bool {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner).joined.is_empty()
    }

    /// Returns the address of the group to which an event belongs.
    pub(super) fn address(&self, key: usize) -> Option<SocketAddr> {
        self.lock().joined.iter().find(|group| group.key == key).map(|group| group.address)
    }

    /// Marks the group to which an event belongs as lost, and returns its address.
    pub(super) fn lose(&self, key: usize) -> Option<SocketAddr> {
        let mut state = self.lock();
        let group = state.joined.iter_mut().find(|group| group.key == key)?;
        group.is_lost = true;
        Some(group.address)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics under the lock, so a poisoned list is consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_by_address_and_by_key() {
        let groups = Groups::default();
        let (first, second) = (groups.next_key(), groups.next_key());
        assert_eq!((first, second), (1, 2));
        groups.insert(first, "239.1.1.1:7".parse().unwrap());
        groups.insert(second, "[ff0e::1]:0".parse().unwrap());
        assert_eq!(groups.find("239.1.1.1:0".parse().unwrap()).unwrap().address, "239.1.1.1:7".parse().unwrap());
        assert_eq!(groups.find("239.1.1.2:7".parse().unwrap()), None);
        assert_eq!(groups.address(second), Some("[ff0e::1]:0".parse().unwrap()));
        assert_eq!((groups.address(0), groups.address(3), groups.lose(0)), (None, None, None));
        assert!(groups.all().iter().all(|group| !group.is_lost));
        assert_eq!(groups.lose(first), Some("239.1.1.1:7".parse().unwrap()));
        let lost = groups.find("239.1.1.1:0".parse().unwrap()).unwrap();
        assert!(lost.is_lost);
        groups.remove(lost);
        assert_eq!(groups.address(first), None);
        assert_eq!((groups.all().len(), groups.next_key()), (1, 3));
    }
}
