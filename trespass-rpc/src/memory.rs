//! Memory for attachments and targets.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use trespass::{Region, Registrar};

/// The minimum length of a `Memory`, and the maximum length that the pool keeps for reuse.
const SMALLEST: usize = 4 << 10;
const LARGEST: usize = 1 << 30;

/// Memory that peers read and write. The memory is registered with the device of a connection; for TCP it is on the
/// heap. Clones share the memory.
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
}

enum Storage {
    Region(Region),
    Heap(Mutex<Vec<u8>>),
}

impl Memory {
    /// Uses memory that the program has registered, such as a GPU's: see
    /// [`Channel::registrar`](crate::Channel::registrar).
    pub fn of_region(region: Region) -> Self {
        let length = region.len();
        Self(Arc::new(Inner { storage: Some(Storage::Region(region)), length, pool: None }))
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
    /// `InvalidInput` if the bytes are not within the memory; `Unsupported` for memory that the program has registered.
    pub fn read_at(&self, offset: usize, bytes: &mut [u8]) -> io::Result<()> {
        let range = self.within(offset, bytes.len())?;
        match &self.0.storage {
            Some(Storage::Region(region)) => region.read_at(offset, bytes),
            Some(Storage::Heap(heap)) => {
                bytes.copy_from_slice(&lock(heap)[range]);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Copies bytes into the memory.
    ///
    /// # Errors
    ///
    /// See [`Memory::read_at`].
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        let range = self.within(offset, bytes.len())?;
        match &self.0.storage {
            Some(Storage::Region(region)) => region.write_at(offset, bytes),
            Some(Storage::Heap(heap)) => {
                lock(heap)[range].copy_from_slice(bytes);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Copies all bytes into a vector.
    ///
    /// # Errors
    ///
    /// See [`Memory::read_at`].
    pub fn to_vec(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.len()];
        self.read_at(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Returns the region if the memory is registered.
    pub(crate) fn region(&self) -> Option<&Region> {
        match &self.0.storage {
            Some(Storage::Region(region)) => Some(region),
            _ => None,
        }
    }

    pub(crate) fn within(&self, offset: usize, length: usize) -> io::Result<Range<usize>> {
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
        pool.take_back(storage);
    }
}

/// A pool of memory. It keeps released memory up to a watermark, and returns the rest to the system.
pub(crate) struct MemoryPool {
    registrar: Option<Registrar>,
    watermark: usize,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    bytes: usize,
    by_size: BTreeMap<usize, Vec<Storage>>,
    /// Memory that a peer may still access, because its keys have not been revoked completely.
    quarantine: Vec<Region>,
}

impl MemoryPool {
    /// Creates a pool of registered memory, or of memory on the heap if there is no registrar.
    pub(crate) fn new(registrar: Option<Registrar>, watermark: usize) -> Self {
        Self { registrar, watermark, kept: Mutex::default() }
    }

    pub(crate) fn watermark(&self) -> usize {
        self.watermark
    }

    pub(crate) fn registrar(&self) -> Option<&Registrar> {
        self.registrar.as_ref()
    }

    /// Allocates memory, which may contain bytes from an earlier use.
    pub(crate) fn alloc(self: &Arc<Self>, length: usize) -> io::Result<Memory> {
        let size = if length > LARGEST { length } else { length.max(SMALLEST).next_power_of_two() };
        let kept = {
            let mut kept = lock(&self.kept);
            kept.release();
            let storage = kept.by_size.get_mut(&size).and_then(Vec::pop);
            kept.bytes -= if storage.is_some() { size } else { 0 };
            storage
        };
        let storage = match (kept, &self.registrar) {
            (Some(storage), _) => storage,
            (None, Some(registrar)) => Storage::Region(registrar.region(size)?),
            (None, None) => Storage::Heap(Mutex::new(vec![0; size])),
        };
        Ok(Memory(Arc::new(Inner { storage: Some(storage), length, pool: Some(Arc::clone(self)) })))
    }

    fn take_back(&self, storage: Storage) {
        let mut kept = lock(&self.kept);
        let size = storage.size();
        if kept.bytes + size > self.watermark {
            return;
        }
        kept.bytes += size;
        match storage {
            Storage::Region(region) if !region.is_unique() => kept.quarantine.push(region),
            storage => kept.by_size.entry(size).or_default().push(storage),
        }
    }
}

impl Storage {
    fn size(&self) -> usize {
        match self {
            Self::Region(region) => region.len(),
            Self::Heap(heap) => lock(heap).len(),
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
        let pool = Arc::new(MemoryPool::new(None, 20_000));
        let memory = pool.alloc(10_000).unwrap();
        memory.write_at(9_990, b"0123456789").unwrap();
        assert!(memory.write_at(9_991, b"0123456789").is_err() && memory.read_at(usize::MAX, &mut [0]).is_err());
        drop(memory.clone());
        assert_eq!(lock(&pool.kept).bytes, 0);
        drop(memory);
        assert_eq!(lock(&pool.kept).bytes, 16_384);
        let again = [pool.alloc(16_000).unwrap(), pool.alloc(16_000).unwrap()];
        assert_eq!(lock(&pool.kept).bytes, 0);
        drop(again);
        assert_eq!(lock(&pool.kept).bytes, 16_384, "keeping the second would exceed the watermark");
    }
}
