//! The map from queue pair numbers to links.

use rustc_hash::FxHashMap;

use crate::backend::LinkId;

/// A map from queue pair numbers, which the device chooses, to links. The backend uses it to find the link of each
/// received message.
#[derive(Debug)]
pub(super) struct NumberMap {
    /// A cache with one established link for each value of the number's lowest bits.
    recent: [(u32, LinkId); PLACES],
    all: FxHashMap<u32, LinkId>,
}

const PLACES: usize = 256;
/// An entry with an invalid number; valid numbers have 24 bits.
const NONE: (u32, LinkId) = (u32::MAX, LinkId { index: 0, generation: 0 });

impl Default for NumberMap {
    fn default() -> Self {
        Self { recent: [NONE; PLACES], all: FxHashMap::default() }
    }
}

impl NumberMap {
    pub(super) fn insert(&mut self, number: u32, link: LinkId) {
        self.all.insert(number, link);
    }

    pub(super) fn remove(&mut self, number: u32) {
        self.all.remove(&number);
        let place = &mut self.recent[number as usize % PLACES];
        if place.0 == number {
            *place = NONE;
        }
    }

    /// Returns a link in any state.
    pub(super) fn get(&self, number: u32) -> Option<LinkId> {
        self.all.get(&number).copied()
    }

    /// Makes [`NumberMap::recent`] return this established link until another link takes its place.
    pub(super) fn keep(&mut self, number: u32, link: LinkId) {
        self.recent[number as usize % PLACES] = (number, link);
    }

    /// Returns a link that was [kept](NumberMap::keep).
    #[inline]
    pub(super) fn recent(&self, number: u32) -> Option<LinkId> {
        let (recent, link) = self.recent[number as usize % PLACES];
        (recent == number).then_some(link)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_share_a_place_keep_their_links() {
        let link = |index| LinkId { index, generation: 3 };
        let mut map = NumberMap::default();
        let (first, second) = (5, 5 + PLACES as u32);
        map.insert(first, link(1));
        map.insert(second, link(2));
        assert_eq!((map.get(first), map.get(second), map.get(6)), (Some(link(1)), Some(link(2)), None));
        assert_eq!((map.recent(first), map.recent(second)), (None, None));
        map.keep(first, link(1));
        map.keep(second, link(2));
        assert_eq!((map.recent(first), map.recent(second)), (None, Some(link(2))));
        map.remove(second);
        assert_eq!((map.get(first), map.get(second), map.recent(second)), (Some(link(1)), None, None));
    }
}
