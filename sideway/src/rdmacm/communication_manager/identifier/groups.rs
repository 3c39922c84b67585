//! The multicast groups that an identifier is in, as the library has them.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the library was told, in step with what it has: written while nobody else calls on the identifier or takes an event.
#[derive(Debug, Default)]
pub(super) struct Groups(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last_key: usize,
    joined: Vec<Group>,
}

/// A group, with what the library was given for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// What its events name it by.
    key: usize,
    /// Where it is, by which the library knows it.
    pub(super) address: SocketAddr,
    /// Whether an event has said that it could not be joined, or is lost. The library has it still.
    pub(super) is_lost: bool,
}

impl Groups {
    /// A key that no group of the identifier has had. Never 0.
    pub(super) fn next_key(&self) -> usize {
        let mut state = self.lock();
        state.last_key = state.last_key.wrapping_add(1).max(1);
        state.last_key
    }

    /// Enters a group that the library has.
    pub(super) fn insert(&self, key: usize, address: SocketAddr) {
        self.lock().joined.push(Group { key, address, is_lost: false });
    }

    /// The group of this address, whatever the port.
    pub(super) fn find(&self, address: SocketAddr) -> Option<Group> {
        self.lock().joined.iter().find(|group| group.address.ip() == address.ip()).copied()
    }

    /// Takes a group out, which the library is about to forget.
    pub(super) fn remove(&self, group: Group) {
        self.lock().joined.retain(|other| other.key != group.key);
    }

    /// All groups.
    pub(super) fn all(&self) -> Vec<Group> {
        self.lock().joined.clone()
    }

    /// Whether it is in none.
    pub(super) fn is_empty(&mut self) -> bool {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner).joined.is_empty()
    }

    /// Where the group is that an event is of.
    pub(super) fn address(&self, key: usize) -> Option<SocketAddr> {
        self.lock().joined.iter().find(|group| group.key == key).map(|group| group.address)
    }

    /// The same for an event that says that the group is lost.
    pub(super) fn lose(&self, key: usize) -> Option<SocketAddr> {
        let mut state = self.lock();
        let group = state.joined.iter_mut().find(|group| group.key == key)?;
        group.is_lost = true;
        Some(group.address)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics under the lock, and a list that was left whole is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_known_by_its_address_and_its_key() {
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
