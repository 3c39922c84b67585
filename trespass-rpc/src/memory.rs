//! Memory for attachments and targets.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use trespass::{Generation, Region, Registrar};

/// The minimum length of a `Memory`, and the maximum length that the pool keeps for reuse.
const SMALLEST: usize = 4 << 10;
const LARGEST: usize = 1 << 30;
/// The length of a part of memory on the heap.
const PART: usize = 1 << 20;
/// Length of the parts in which bytes are transferred from or to memory that is not registered.
pub(crate) const STAGE: usize = 256 << 10;
/// The minimum of a [`Budget`].
const LEAST: usize = 4 << 20;

/// Memory that peers read and write. The memory is registered with the device of a connection. For TCP, and for
/// attachments beyond the budget (see [`Attachment::read`](crate::Attachment::read)), it is on the heap. Clones share the
/// memory.
///
/// The program may copy bytes to or from the memory at any time. If the peer writes at the same time, a copy may mix
/// old and new bytes. The memory stays allocated until no call, key or device request uses it, even if the program
/// drops its handles.
#[derive(Clone)]
pub struct Memory(Arc<Inner>);

struct Inner {
    /// `None` only during `drop`.
    storage: Option<Storage>,
    length: usize,
    pool: Option<Arc<MemoryPool>>,
    /// The process that allocated the memory. Its children do not have the pages that a device accesses.
    process: Generation,
    /// The share of the budgets that the memory takes up, if a peer chose its length.
    _share: Share,
}

enum Storage {
    Region(Region),
    Heap(Mutex<Heap>),
}

/// Memory on the heap, in parts of [`PART`] bytes. A part is allocated when bytes of it are first written, because a peer
/// may have chosen the length of the memory. Bytes that were not written are zero.
#[derive(Default)]
struct Heap {
    parts: BTreeMap<usize, Vec<u8>>,
    allocated: usize,
}

impl Heap {
    /// Splits a range into ranges of single parts: the number of each part, the offset in it, and the length.
    fn parts(offset: usize, length: usize) -> impl Iterator<Item = (usize, usize, usize)> {
        let (mut at, end) = (offset, offset + length);
        std::iter::from_fn(move || {
            let (number, start) = (at / PART, at % PART);
            let count = (PART - start).min(end - at);
            at += count;
            (count > 0).then_some((number, start, count))
        })
    }

    fn read(&self, offset: usize, mut bytes: &mut [u8]) {
        for (number, start, count) in Self::parts(offset, bytes.len()) {
            let (place, rest) = bytes.split_at_mut(count);
            let written = self.parts.get(&number).and_then(|part| part.get(start..)).unwrap_or_default();
            let (copied, zeros) = place.split_at_mut(written.len().min(count));
            copied.copy_from_slice(&written[..copied.len()]);
            zeros.fill(0);
            bytes = rest;
        }
    }

    /// Writes bytes. The memory has `size` bytes. Parts that the pool has kept are used again.
    fn write(&mut self, offset: usize, mut bytes: &[u8], size: usize, pool: Option<&MemoryPool>) -> io::Result<()> {
        for (number, start, count) in Self::parts(offset, bytes.len()) {
            let part = self.parts.entry(number).or_default();
            if part.capacity() == 0 {
                let length = PART.min(size - number * PART);
                *part = pool.filter(|_| length == PART).and_then(MemoryPool::part).unwrap_or_default();
                part.try_reserve_exact(length).map_err(|_| no_memory(length))?;
                self.allocated += part.capacity();
            }
            if part.len() < start {
                part.resize(start, 0);
            }
            let (now, rest) = bytes.split_at(count);
            let (over, beyond) = now.split_at((part.len() - start).min(count));
            part[start..start + over.len()].copy_from_slice(over);
            part.extend_from_slice(beyond);
            bytes = rest;
        }
        Ok(())
    }
}

#[cold]
fn no_memory(length: usize) -> io::Error {
    io::Error::new(io::ErrorKind::OutOfMemory, format!("the system has no memory for {length} bytes"))
}

impl Memory {
    /// Uses memory that the program has registered, such as a GPU's: see
    /// [`Channel::registrar`](crate::Channel::registrar).
    pub fn of_region(region: Region) -> Self {
        let length = region.len();
        Self::new(Storage::Region(region), length, None, Share::default())
    }

    /// Allocates memory on the heap, part by part as bytes of it are written.
    pub(crate) fn on_heap(length: usize) -> Self {
        Self::new(Storage::Heap(Mutex::default()), length, None, Share::default())
    }

    fn new(storage: Storage, length: usize, pool: Option<Arc<MemoryPool>>, share: Share) -> Self {
        let (storage, process) = (Some(storage), Generation::this());
        Self(Arc::new(Inner { storage, length, pool, process, _share: share }))
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.0.length
    }

    /// Whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes from the memory.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the bytes are not within the memory; `Unsupported` for memory that the program has registered,
    /// and in a child of the process that allocated the memory (fork(2)).
    pub fn read_at(&self, offset: usize, bytes: &mut [u8]) -> io::Result<()> {
        let range = self.within(offset, bytes.len())?;
        match &self.0.storage {
            Some(Storage::Region(region)) => region.read_at(offset, bytes),
            Some(Storage::Heap(heap)) => {
                lock(heap).read(range.start, bytes);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Copies bytes into the memory.
    ///
    /// # Errors
    ///
    /// See [`Memory::read_at`]; `OutOfMemory` if the system has no memory for the bytes.
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        let range = self.within(offset, bytes.len())?;
        match &self.0.storage {
            Some(Storage::Region(region)) => region.write_at(offset, bytes),
            Some(Storage::Heap(heap)) => {
                lock(heap).write(range.start, bytes, class(self.len()), self.0.pool.as_deref())
            }
            None => Ok(()),
        }
    }

    /// Copies all bytes into a vector.
    ///
    /// # Errors
    ///
    /// See [`Memory::read_at`]; `OutOfMemory` if the system has no memory for the vector.
    pub fn to_vec(&self) -> io::Result<Vec<u8>> {
        self.to_vec_of(0..self.len())
    }

    fn to_vec_of(&self, range: Range<usize>) -> io::Result<Vec<u8>> {
        let (mut bytes, mut buffer) = (Vec::new(), [0; 16 << 10]);
        bytes.try_reserve_exact(range.len()).map_err(|_| no_memory(range.len()))?;
        for start in range.clone().step_by(buffer.len()) {
            let length = buffer.len().min(range.end - start);
            self.read_at(start, &mut buffer[..length])?;
            bytes.extend_from_slice(&buffer[..length]);
        }
        Ok(bytes)
    }

    /// Copies bytes from `offset` on to `part` of another memory.
    pub(crate) fn copy_to(&self, offset: usize, to: &Self, part: Range<usize>) -> io::Result<()> {
        if Arc::ptr_eq(&self.0, &to.0) {
            // The bytes may overlap.
            return to.write_at(part.start, &self.to_vec_of(offset..offset + part.len())?);
        }
        let mut buffer = [0; 16 << 10];
        for start in part.clone().step_by(buffer.len()) {
            let length = buffer.len().min(part.end - start);
            let bytes = &mut buffer[..length];
            self.read_at(offset + (start - part.start), bytes)?;
            to.write_at(start, bytes)?;
        }
        Ok(())
    }

    /// Returns the region if the memory is registered.
    pub(crate) fn region(&self) -> Option<&Region> {
        match &self.0.storage {
            Some(Storage::Region(region)) => Some(region),
            _ => None,
        }
    }

    pub(crate) fn within(&self, offset: usize, length: usize) -> io::Result<Range<usize>> {
        self.0.process.check()?;
        match offset.checked_add(length).filter(|end| *end <= self.len()) {
            Some(end) => Ok(offset..end),
            None => {
                let text =
                    format!("{length} bytes at offset {offset} exceed the memory's length of {} bytes", self.len());
                Err(io::Error::new(io::ErrorKind::InvalidInput, text))
            }
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("length", &self.len()).finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let (Some(pool), Some(storage)) = (&self.pool, self.storage.take()) else { return };
        if self.process.is_over() {
            // A thread of the parent may have held the locks at the fork.
            std::mem::forget(storage);
            return;
        }
        pool.take_back(storage, self.length);
    }
}

/// How much registered memory peers may occupy with the lengths that they announce. A device pins registered memory, so
/// it must not grow with numbers that a peer has made up.
#[derive(Debug)]
pub(crate) struct Budget(Arc<Semaphore>);

/// The parts of the budgets that a `Memory` takes up. A transfer holds the `Memory`, so that they are not free before the
/// device has released it.
type Share = [Option<OwnedSemaphorePermit>; 2];

impl Budget {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new((bytes / SMALLEST).min(Semaphore::MAX_PERMITS))))
    }

    /// Takes what a `Memory` of this length needs, if it is free.
    pub(crate) fn take(&self, length: usize) -> Option<OwnedSemaphorePermit> {
        let count = u32::try_from(class(length).div_ceil(SMALLEST)).ok()?;
        Arc::clone(&self.0).try_acquire_many_owned(count).ok()
    }
}

/// A pool of memory. It keeps released memory up to a watermark, and returns the rest to the system.
pub(crate) struct MemoryPool {
    registrar: Option<Registrar>,
    watermark: usize,
    /// The budget of all connections of the endpoint together.
    budget: Budget,
    /// What the program may allocate, and the limit from which it is taken.
    programs: Budget,
    limit: usize,
    process: Generation,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    bytes: usize,
    by_size: BTreeMap<usize, Vec<Storage>>,
    /// Empty parts of memory on the heap. Without them, the system would clear the pages for each long attachment again.
    parts: Vec<Vec<u8>>,
    /// Memory that a peer may still access, because its keys have not been revoked completely.
    quarantine: Vec<Region>,
}

impl MemoryPool {
    /// Creates a pool of registered memory, or of memory on the heap if there is no registrar.
    /// `limit` is the maximum number of bytes that the program has from [`alloc`](Self::alloc) at a time.
    pub(crate) fn new(registrar: Option<Registrar>, watermark: usize, limit: usize) -> Self {
        let (budget, programs) = (Budget::new(watermark.max(LEAST)), Budget::new(limit));
        Self { registrar, watermark, budget, programs, limit, process: Generation::this(), kept: Mutex::default() }
    }

    /// Creates a pool of registered memory with the same watermark and limit.
    pub(crate) fn registered(&self, registrar: Registrar) -> Self {
        Self::new(Some(registrar), self.watermark, self.limit)
    }

    /// The budget of one connection: half as much, so that one connection cannot take all.
    pub(crate) fn budget_of_connection(&self) -> Budget {
        Budget::new((self.watermark / 2).max(LEAST))
    }

    pub(crate) fn registrar(&self) -> Option<&Registrar> {
        self.registrar.as_ref()
    }

    /// Allocates memory for the program. It may contain bytes from an earlier use.
    pub(crate) fn alloc(self: &Arc<Self>, length: usize) -> io::Result<Memory> {
        self.process.check()?;
        match self.programs.take(length) {
            Some(share) => self.alloc_with(length, [Some(share), None]),
            None => Err(self.limited(length)),
        }
    }

    #[cold]
    fn limited(&self, length: usize) -> io::Error {
        let text = format!(
            "{length} bytes exceed what is left of the limit of {} bytes for attachments and targets; drop memory of \
             earlier calls, or increase Options::memory",
            self.limit
        );
        io::Error::new(io::ErrorKind::OutOfMemory, text)
    }

    /// Allocates memory on the heap, part by part as bytes of an attachment of a peer arrive.
    pub(crate) fn arriving(self: &Arc<Self>, length: usize) -> io::Result<Memory> {
        self.alloc_with(length, Share::default())
    }

    /// Allocates memory whose length a peer has announced. Returns `None` if the budgets or the system have no registered
    /// memory left.
    pub(crate) fn announced(self: &Arc<Self>, length: usize, connection: &Budget) -> Option<Memory> {
        let share = match self.registrar {
            Some(_) => [Some(connection.take(length)?), Some(self.budget.take(length)?)],
            None => Share::default(),
        };
        self.alloc_with(length, share).ok()
    }

    /// Allocates memory that takes up this part of a connection's stage.
    pub(crate) fn staged(self: &Arc<Self>, length: usize, part: Option<OwnedSemaphorePermit>) -> io::Result<Memory> {
        self.alloc_with(length, [part, None])
    }

    fn alloc_with(self: &Arc<Self>, length: usize, share: Share) -> io::Result<Memory> {
        self.process.check()?;
        let size = class(length);
        let kept = {
            let mut kept = lock(&self.kept);
            kept.release();
            let storage = kept.by_size.get_mut(&size).and_then(Vec::pop);
            kept.bytes -= storage.as_ref().map_or(0, Storage::size);
            storage
        };
        let storage = match (kept, &self.registrar) {
            (Some(storage), _) => storage,
            (None, Some(registrar)) => Storage::Region(registrar.region(size)?),
            (None, None) => Storage::Heap(Mutex::default()),
        };
        Ok(Memory::new(storage, length, Some(Arc::clone(self)), share))
    }

    /// Returns a part of memory on the heap that is kept.
    fn part(&self) -> Option<Vec<u8>> {
        let mut kept = lock(&self.kept);
        let part = kept.parts.pop()?;
        kept.bytes -= part.capacity();
        Some(part)
    }

    /// Keeps the storage of a `Memory` of this length.
    fn take_back(&self, storage: Storage, length: usize) {
        let size = storage.size();
        let mut kept = lock(&self.kept);
        if let Storage::Heap(heap) = &storage
            && length > PART
        {
            for mut part in std::mem::take(&mut lock(heap).parts).into_values() {
                if part.capacity() == PART && kept.bytes + PART <= self.watermark {
                    part.clear();
                    kept.bytes += PART;
                    kept.parts.push(part);
                }
            }
            return;
        }
        if size == 0 || length > LARGEST || kept.bytes + size > self.watermark {
            return;
        }
        kept.bytes += size;
        match storage {
            Storage::Region(region) if !region.is_unique() => kept.quarantine.push(region),
            storage => kept.by_size.entry(class(length)).or_default().push(storage),
        }
    }
}

/// The length of the storage of a `Memory` of this length, which determines where the pool keeps it.
fn class(length: usize) -> usize {
    if length > LARGEST { length } else { length.max(SMALLEST).next_power_of_two() }
}

impl Storage {
    /// The number of allocated bytes.
    fn size(&self) -> usize {
        match self {
            Self::Region(region) => region.len(),
            Self::Heap(heap) => lock(heap).allocated,
        }
    }
}

impl Kept {
    /// Returns memory from the quarantine to the pool if no peer can access it any more.
    fn release(&mut self) {
        for at in (0..self.quarantine.len()).rev() {
            if self.quarantine[at].is_unique() {
                let region = self.quarantine.swap_remove(at);
                self.by_size.entry(region.len()).or_default().push(Storage::Region(region));
            }
        }
    }
}

impl fmt::Debug for MemoryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryPool").field("kept", &lock(&self.kept).bytes).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_up_to_the_watermark() {
        let pool = Arc::new(MemoryPool::new(None, 20_000, usize::MAX));
        let memory = pool.alloc(10_000).unwrap();
        memory.write_at(9_990, b"0123456789").unwrap();
        assert!(memory.write_at(9_991, b"0123456789").is_err() && memory.read_at(usize::MAX, &mut [0]).is_err());
        drop(memory.clone());
        assert_eq!(lock(&pool.kept).bytes, 0);
        drop(memory);
        assert_eq!(lock(&pool.kept).bytes, 16_384);
        let again = [pool.alloc(16_000).unwrap(), pool.alloc(16_000).unwrap()];
        assert_eq!(lock(&pool.kept).bytes, 0);
        again.iter().for_each(|memory| memory.write_at(15_999, b"0").unwrap());
        drop(again);
        assert_eq!(lock(&pool.kept).bytes, 16_384, "keeping the second would exceed the watermark");
    }

    #[test]
    fn overlapping_bytes_are_copied_as_they_were() {
        let memory = Arc::new(MemoryPool::new(None, 0, usize::MAX)).alloc(100_000).unwrap();
        let bytes: Vec<u8> = (0..90_000_u32).map(|at| (at / 300) as u8).collect();
        memory.write_at(0, &bytes).unwrap();
        memory.copy_to(0, &memory.clone(), 5_000..95_000).unwrap();
        assert!(memory.to_vec().unwrap()[5_000..95_000] == bytes);
    }

    /// A peer announces the length of its attachment, and may send nothing.
    #[test]
    fn memory_is_allocated_as_bytes_arrive() {
        const LENGTH: usize = 1 << 60;
        let pool = Arc::new(MemoryPool::new(None, 0, usize::MAX));
        let memory = pool.arriving(LENGTH).unwrap();
        let allocated = || memory.0.storage.as_ref().map_or(0, Storage::size);
        assert_eq!((allocated(), memory.to_vec().unwrap_err().kind()), (0, io::ErrorKind::OutOfMemory));
        for (offset, bytes) in [(3, &b"abcdef"[..]), (1, b"xy"), (7, b"12345")] {
            memory.write_at(offset, bytes).unwrap();
        }
        let mut read = [9; 16];
        memory.read_at(0, &mut read).unwrap();
        assert_eq!(&read, b"\0xyabcd12345\0\0\0\0");
        memory.write_at(LENGTH - PART - 8, &[1; 16]).unwrap();
        memory.read_at(LENGTH - PART - 8, &mut read).unwrap();
        assert_eq!((read, allocated()), ([1; 16], 3 * PART));
        memory.read_at(LENGTH - 16, &mut read).unwrap();
        assert_eq!(read, [0; 16]);
    }
}
