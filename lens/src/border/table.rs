//! Records of live objects by their address, or queue pairs by number, which the data path finds without a lock.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fmt, ptr};

/// An open-addressed table. Records are never freed: when their object is destroyed, they serve another object, so that a
/// thread that still reads one reads live memory. Nor are arrays: those that a larger one replaced are together at most
/// as large as the current one, and two of its size take turns when slots of destroyed objects are cleared.
pub(super) struct Table<T: 'static> {
    /// Records that were found lately, by their keys.
    lately: [AtomicPtr<T>; LATELY],
    slots: AtomicPtr<Slots<T>>,
    /// Counts the arrays that `slots` had.
    turn: AtomicU64,
    writer: Mutex<Writer<T>>,
}

/// A record, which has the key of its object; zero while it has none.
pub(super) trait Keyed {
    fn key(&self) -> &AtomicU64;
}

const LATELY: usize = 256;

struct Slots<T: 'static> {
    slots: Box<[Slot<T>]>,
    shift: u32,
}

struct Slot<T: 'static> {
    /// Zero in a slot that was never used.
    key: AtomicU64,
    record: AtomicPtr<T>,
}

struct Writer<T: 'static> {
    /// Slots with a key.
    used: usize,
    /// Keys with a record.
    live: usize,
    /// The array before the current one, if it has the same size.
    spare: Option<&'static Slots<T>>,
    free: Vec<&'static T>,
    /// Records of objects that are being destroyed.
    leaving: Vec<&'static T>,
}

const FIRST: usize = 64;
/// 2^64 divided by the golden ratio, which spreads addresses over the upper bits.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl<T: Keyed + Sync> Table<T> {
    pub(super) const fn new() -> Self {
        let writer = Writer { used: 0, live: 0, spare: None, free: Vec::new(), leaving: Vec::new() };
        Self {
            lately: [const { AtomicPtr::new(ptr::null_mut()) }; LATELY],
            slots: AtomicPtr::new(ptr::null_mut()),
            turn: AtomicU64::new(0),
            writer: Mutex::new(writer),
        }
    }

    /// Returns the record of `key`.
    #[inline]
    pub(super) fn find(&self, key: u64) -> Option<&'static T> {
        self.recent(key).or_else(|| self.search(key, Self::place(key)))
    }

    fn place(key: u64) -> usize {
        (key.wrapping_mul(SPREAD) >> (u64::BITS - LATELY.trailing_zeros())) as usize
    }

    /// Returns the record of `key` if it was found lately.
    #[inline]
    pub(super) fn recent(&self, key: u64) -> Option<&'static T> {
        // SAFETY: the record is null, or was leaked.
        let record = unsafe { self.lately[Self::place(key)].load(Ordering::Acquire).as_ref() };
        record.filter(|record| record.key().load(Ordering::Relaxed) == key && key != 0)
    }

    #[cold]
    #[inline(never)]
    fn search(&self, key: u64, place: usize) -> Option<&'static T> {
        if key == 0 {
            return None;
        }
        loop {
            let turn = self.turn.load(Ordering::Acquire);
            // SAFETY: the array is null, or was leaked.
            let slots = unsafe { self.slots.load(Ordering::Acquire).as_ref() }?;
            let found = slots.at(key).record.load(Ordering::Acquire);
            // SAFETY: the record is null, or was leaked.
            match unsafe { found.as_ref() } {
                Some(record) if record.key().load(Ordering::Acquire) == key => {
                    self.lately[place].store(found, Ordering::Release);
                    return Some(record);
                }
                // The slot was given to another object after its key was read, or the object is just being removed.
                Some(_) => std::hint::spin_loop(),
                // An array that is no longer the current one may lack the key.
                None if self.turn.load(Ordering::Acquire) == turn => return None,
                None => {}
            }
        }
    }

    /// Makes a record for `key`: one that served another object, or a new one. `set_up` prepares it before other threads
    /// find it. A record that `key` has is that of a destroyed object, and serves another, unless a thread is about to
    /// call [`left`](Self::left) for it.
    pub(super) fn insert(&self, key: u64, make: impl FnOnce() -> T, set_up: impl FnOnce(&'static T)) -> &'static T {
        let mut writer = self.lock();
        if let Some(stale) = self.remove(&mut writer, key, None)
            && !writer.leaving.iter().any(|record| ptr::eq(*record, stale))
        {
            writer.free.push(stale);
        }
        let record = writer.free.pop().unwrap_or_else(|| Box::leak(Box::new(make())));
        set_up(record);
        record.key().store(key, Ordering::Release);
        self.store(&mut writer, key, record);
        record
    }

    /// The object of `key` is about to be destroyed. Its record is found until [`left`](Self::left), because destroying may
    /// fail, but a new object at this address gets another record.
    pub(super) fn leave(&self, key: u64) -> Option<&'static T> {
        let mut writer = self.lock();
        let record = self.find(key)?;
        writer.leaving.push(record);
        Some(record)
    }

    /// The object of a record was destroyed: the record serves another.
    pub(super) fn left(&self, key: u64, record: &'static T) {
        let mut writer = self.lock();
        self.remove(&mut writer, key, Some(record));
        writer.leaving.retain(|leaving| !ptr::eq(*leaving, record));
        writer.free.push(record);
    }

    /// The object of a record was not destroyed.
    pub(super) fn stays(&self, record: &'static T) {
        self.lock().leaving.retain(|leaving| !ptr::eq(*leaving, record));
    }

    /// Removes the record of `key`, if it is `only` or that is `None`.
    fn remove(&self, writer: &mut Writer<T>, key: u64, only: Option<&'static T>) -> Option<&'static T> {
        if key == 0 {
            return None;
        }
        // SAFETY: arrays and records are never freed.
        let slots = unsafe { self.slots.load(Ordering::Acquire).as_ref() }?;
        let slot = slots.at(key);
        // SAFETY: as above.
        let record = unsafe { slot.record.load(Ordering::Acquire).as_ref() }?;
        if only.is_some_and(|only| !ptr::eq(only, record)) {
            return None;
        }
        slot.record.store(ptr::null_mut(), Ordering::Release);
        writer.live -= 1;
        record.key().store(0, Ordering::Release);
        Some(record)
    }

    /// Returns all live records.
    pub(super) fn all(&self) -> Vec<&'static T> {
        let _writer = self.lock();
        // SAFETY: arrays and records were leaked.
        let slots = unsafe { self.slots.load(Ordering::Acquire).as_ref() };
        let slots = slots.map_or(&[][..], |slots| &*slots.slots);
        // SAFETY: as above.
        slots.iter().filter_map(|slot| unsafe { slot.record.load(Ordering::Acquire).as_ref() }).collect()
    }

    /// Makes `key` lead to `record`.
    fn store(&self, writer: &mut Writer<T>, key: u64, record: &'static T) {
        // SAFETY: the array is null, or was leaked.
        let mut slots = unsafe { self.slots.load(Ordering::Acquire).as_ref() };
        if slots.is_none_or(|slots| (writer.used + 1) * 2 > slots.slots.len()) {
            slots = Some(self.renew(writer, slots));
        }
        let Some(slots) = slots else { return };
        writer.used += usize::from(slots.put(key, record));
        writer.live += 1;
    }

    /// Returns a new current array, without the slots of destroyed objects: a larger one unless most are such slots.
    fn renew(&self, writer: &mut Writer<T>, old: Option<&'static Slots<T>>) -> &'static Slots<T> {
        let count = old.map_or(0, |old| old.slots.len());
        let spare = writer.spare.take().filter(|spare| spare.slots.len() == count && writer.live * 4 <= count);
        let size = if writer.live * 4 <= count { count.max(FIRST) } else { count * 2 };
        let new = spare.unwrap_or_else(|| Box::leak(Box::new(Slots::new(size))));
        for slot in &new.slots {
            // A thread that still reads this array and sees the change also sees that there was another turn.
            slot.record.store(ptr::null_mut(), Ordering::Release);
            slot.key.store(0, Ordering::Release);
        }
        for old in old.map_or(&[][..], |old| &*old.slots) {
            // SAFETY: records are never freed.
            if let Some(record) = unsafe { old.record.load(Ordering::Acquire).as_ref() } {
                new.put(old.key.load(Ordering::Relaxed), record);
            }
        }
        writer.used = writer.live;
        writer.spare = old.filter(|_| size == count);
        self.slots.store(ptr::from_ref(new).cast_mut(), Ordering::Release);
        self.turn.fetch_add(1, Ordering::AcqRel);
        new
    }

    fn lock(&self) -> MutexGuard<'_, Writer<T>> {
        // The writer's state is consistent even if a thread panicked with the lock held.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Slots<T> {
    fn new(count: usize) -> Self {
        let slot = |_| Slot { key: AtomicU64::new(0), record: AtomicPtr::new(ptr::null_mut()) };
        Self { slots: (0..count).map(slot).collect(), shift: 64 - count.trailing_zeros() }
    }

    /// The slot with `key`, or the empty slot where it belongs. There are always empty slots.
    #[inline]
    fn at(&self, key: u64) -> &Slot<T> {
        let is_end = |slot: &&Slot<T>| matches!(slot.key.load(Ordering::Acquire), found if found == key || found == 0);
        self.way(key).find(is_end).unwrap_or_else(|| unreachable!("there are always empty slots"))
    }
}

impl<T> Slots<T> {
    /// Stores a record under a key that has none: in the slot of the key, or in the first slot on the way to it whose
    /// object was destroyed, or in the empty slot. Returns whether it was empty. A thread that looks for the destroyed
    /// object may find the new record, which is a live one too.
    fn put(&self, key: u64, record: &'static T) -> bool {
        let mut destroyed = None;
        let slot = self.way(key).find_map(|slot| match slot.key.load(Ordering::Relaxed) {
            0 => Some(destroyed.unwrap_or(slot)),
            found if found == key => Some(slot),
            _ if slot.record.load(Ordering::Relaxed).is_null() => {
                destroyed = destroyed.or(Some(slot));
                None
            }
            _ => None,
        });
        let Some(slot) = slot else { unreachable!("there are always empty slots") };
        let before = slot.key.swap(key, Ordering::AcqRel);
        slot.record.store(ptr::from_ref(record).cast_mut(), Ordering::Release);
        before == 0
    }

    /// The slots from the first one where `key` may be.
    #[inline]
    fn way(&self, key: u64) -> impl Iterator<Item = &Slot<T>> {
        let first = (key.wrapping_mul(SPREAD) >> self.shift) as usize;
        (first..).map(|index| &self.slots[index & (self.slots.len() - 1)])
    }
}

impl<T> fmt::Debug for Table<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Record {
        key: AtomicU64,
        value: AtomicU64,
    }

    impl Keyed for Record {
        fn key(&self) -> &AtomicU64 {
            &self.key
        }
    }

    #[test]
    fn records_are_found_until_they_are_removed() {
        static TABLE: Table<Record> = Table::new();
        assert!(TABLE.find(16).is_none());
        for key in 1..=1000 {
            TABLE.insert(key * 16, Record::default, |record| record.value.store(key, Ordering::Relaxed));
        }
        let found = |key: u64| TABLE.find(key * 16).map(|record| record.value.load(Ordering::Relaxed));
        assert!((1..=1000).all(|key| found(key) == Some(key)));
        for key in (1..=1000).step_by(2) {
            let record = TABLE.leave(key * 16).unwrap();
            TABLE.left(key * 16, record);
        }
        assert!((1..=1000).all(|key| found(key) == (key % 2 == 0).then_some(key)));
        assert_eq!(TABLE.all().len(), 500);
        // New objects take the records of destroyed ones.
        for key in 2000..2500 {
            TABLE.insert(
                key * 16,
                || unreachable!("500 records are free"),
                |record| record.value.store(key, Ordering::Relaxed),
            );
        }
        assert_eq!(found(2499), Some(2499));
        assert_eq!(found(1), None);
    }

    #[test]
    fn destroyed_objects_leave_their_slots() {
        static TABLE: Table<Record> = Table::new();
        for key in 1..100_000 {
            TABLE.insert(key, Record::default, |_| ());
            let record = TABLE.leave(key).unwrap();
            TABLE.left(key, record);
        }
        // SAFETY: the array was leaked.
        assert_eq!(unsafe { &*TABLE.slots.load(Ordering::Relaxed) }.slots.len(), FIRST);
        assert_eq!(TABLE.all().len(), 0);
    }

    #[test]
    fn failed_destruction_keeps_the_record() {
        static TABLE: Table<Record> = Table::new();
        let record = TABLE.insert(7, Record::default, |_| ());
        assert!(ptr::eq(TABLE.leave(7).unwrap(), record));
        // Other threads may still use the object.
        assert!(ptr::eq(TABLE.find(7).unwrap(), record));
        TABLE.stays(record);
        assert!(ptr::eq(TABLE.find(7).unwrap(), record));
        assert!(ptr::eq(TABLE.leave(7).unwrap(), record));
        TABLE.left(7, record);
        assert!(TABLE.find(7).is_none() && TABLE.all().is_empty());
    }

    /// The driver has freed the object, and another thread gets its address before the call that destroyed it returns.
    #[test]
    fn new_object_at_the_address_keeps_its_record() {
        static TABLE: Table<Record> = Table::new();
        let old = TABLE.insert(7, Record::default, |_| ());
        assert!(TABLE.find(7).is_some());
        TABLE.leave(7).unwrap();
        let new = TABLE.insert(7, Record::default, |_| ());
        assert!(!ptr::eq(old, new) && ptr::eq(TABLE.find(7).unwrap(), new));
        TABLE.left(7, old);
        assert!(ptr::eq(TABLE.find(7).unwrap(), new));
        assert_eq!(TABLE.all().len(), 1);
        // The old record is free now, once.
        let third = TABLE.insert(9, || unreachable!("a record is free"), |_| ());
        assert!(ptr::eq(third, old));
        assert!(!ptr::eq(TABLE.insert(11, Record::default, |_| ()), old));
    }

    #[test]
    fn unknown_object_does_not_leave() {
        static TABLE: Table<Record> = Table::new();
        assert!(TABLE.leave(7).is_none() && TABLE.leave(0).is_none());
    }
}
