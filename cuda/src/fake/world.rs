//! The memory and the streams of the fake GPUs.

use std::collections::BTreeMap;
use std::ffi::c_uint;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{CUmemorytype, CUpointer_attribute};

use super::{GPUS, ILLEGAL_ADDRESS, INVALID_CONTEXT, INVALID_VALUE};

/// Distance of an allocation from the start of a GPU page. The real driver aligns allocations to 512 bytes too.
const OFFSET: u64 = 512;

struct Allocation {
    /// The context, or 0.
    context: usize,
    number: u64,
    kind: u32,
    is_managed: bool,
    /// Whether functions that copy this memory return only after the copy is complete.
    is_sync: bool,
    bytes: Vec<u8>,
}

struct Stream {
    context: usize,
    pending: Vec<Copy>,
}

/// A copy that has not run yet, with its addresses on the host and on the GPU.
pub(super) enum Copy {
    ToDevice(u64, usize, usize),
    ToHost(usize, u64, usize),
    Within(u64, u64, usize),
    Fill(u64, u8, usize),
}

/// The memory and streams of all threads.
pub(super) struct World {
    last: usize,
    memory: BTreeMap<u64, Allocation>,
    streams: BTreeMap<usize, Stream>,
}

pub(super) fn world() -> MutexGuard<'static, World> {
    static WORLD: Mutex<World> = Mutex::new(World { last: 0x1000, memory: BTreeMap::new(), streams: BTreeMap::new() });
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    /// Returns an unused number.
    pub(super) fn next(&mut self) -> usize {
        self.last += 1;
        self.last
    }

    pub(super) fn allocate(&mut self, context: usize, bytes: Vec<u8>) -> u64 {
        let number = self.next() as u64;
        let address = (number << 40) + OFFSET;
        let kind = CUmemorytype::CU_MEMORYTYPE_DEVICE as u32;
        self.memory.insert(address, Allocation { context, number, kind, is_managed: false, is_sync: false, bytes });
        address
    }

    /// Removes an allocation, and returns its length.
    pub(super) fn free(&mut self, address: u64) -> Result<usize, c_uint> {
        self.memory.remove(&address).map(|allocation| allocation.bytes.len()).ok_or(INVALID_VALUE)
    }

    pub(super) fn replace(&mut self, address: u64) {
        let number = self.next() as u64;
        let allocation = self.memory.get_mut(&address).unwrap();
        allocation.number = number;
        allocation.bytes.fill(0);
    }

    pub(super) fn is_kind(&mut self, address: u64, kind: u32, is_managed: bool) {
        let allocation = self.memory.get_mut(&address).unwrap();
        (allocation.kind, allocation.is_managed) = (kind, is_managed);
    }

    pub(super) fn make_sync(&mut self, address: u64, is_sync: bool) -> Result<(), c_uint> {
        self.memory.get_mut(&address).ok_or(INVALID_VALUE)?.is_sync = is_sync;
        Ok(())
    }

    pub(super) fn destroy(&mut self, context: usize) {
        self.memory.retain(|_, allocation| allocation.context != context);
        self.streams.retain(|_, stream| stream.context != context);
    }

    /// Returns an attribute of an address.
    pub(super) fn attribute(&self, address: u64, attribute: CUpointer_attribute) -> Result<Attribute, c_uint> {
        let found = self.memory.range(..=address).next_back();
        let found = found.filter(|(start, allocation)| address - *start < allocation.bytes.len() as u64);
        Ok(match attribute {
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_CONTEXT => {
                Attribute::Word(found.map_or(0, |(_, allocation)| allocation.context as u64))
            }
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE => {
                Attribute::Half(found.map_or(0, |(_, allocation)| allocation.kind))
            }
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID => {
                Attribute::Word(found.map_or(0, |(_, allocation)| allocation.number))
            }
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED => {
                Attribute::Byte(found.is_some_and(|(_, allocation)| allocation.is_managed).into())
            }
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => {
                // The real driver reports -2 for memory of no device.
                Attribute::Half(found.map_or(-2i32 as u32, |_| GPUS.len() as u32 - 1))
            }
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => {
                Attribute::Word(found.map_or(0, |(start, _)| *start))
            }
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE => {
                Attribute::Word(found.map_or(0, |(_, allocation)| allocation.bytes.len() as u64))
            }
            _ => return Err(INVALID_VALUE),
        })
    }

    /// Whether an address is memory of this context.
    pub(super) fn is_of(&self, address: u64, context: usize) -> bool {
        let context = Attribute::Word(context as u64);
        self.attribute(address, CUpointer_attribute::CU_POINTER_ATTRIBUTE_CONTEXT) == Ok(context)
    }

    pub(super) fn at(&mut self, address: u64, length: usize) -> Result<&mut [u8], c_uint> {
        let (&start, allocation) = self.memory.range_mut(..=address).next_back().ok_or(ILLEGAL_ADDRESS)?;
        let offset = usize::try_from(address - start).map_err(|_| ILLEGAL_ADDRESS)?;
        allocation.bytes.get_mut(offset..).and_then(|rest| rest.get_mut(..length)).ok_or(ILLEGAL_ADDRESS)
    }

    /// Returns memory of which copies are complete when they return.
    pub(super) fn at_sync(&mut self, address: u64, length: usize) -> Result<&mut [u8], c_uint> {
        let last = self.memory.range(..=address).next_back();
        if last.is_some_and(|(_, allocation)| allocation.is_sync) {
            self.at(address, length)
        } else {
            Err(INVALID_VALUE)
        }
    }

    pub(super) fn new_stream(&mut self, context: usize) -> usize {
        let number = self.next();
        self.streams.insert(number, Stream { context, pending: Vec::new() });
        number
    }

    fn stream(&mut self, stream: usize) -> &mut Stream {
        self.streams.get_mut(&stream).expect("the real driver crashes on a destroyed stream")
    }

    /// Adds a copy to a stream of the current context.
    pub(super) fn put(&mut self, stream: usize, current: Option<usize>, copy: Copy) -> Result<(), c_uint> {
        let stream = self.stream(stream);
        if current != Some(stream.context) {
            return Err(INVALID_CONTEXT);
        }
        stream.pending.push(copy);
        Ok(())
    }

    /// Runs the copies of a stream.
    pub(super) fn synchronize(&mut self, stream: usize) -> Result<(), c_uint> {
        let pending = std::mem::take(&mut self.stream(stream).pending);
        pending.iter().try_for_each(|copy| self.run(copy))
    }

    fn run(&mut self, copy: &Copy) -> Result<(), c_uint> {
        match *copy {
            Copy::ToDevice(to, from, length) => {
                let from = ptr::with_exposed_provenance::<u8>(from);
                let to = self.at(to, length)?;
                // SAFETY: the code under test guarantees that `from` is readable.
                unsafe { ptr::copy_nonoverlapping(from, to.as_mut_ptr(), length) };
            }
            Copy::ToHost(to, from, length) => {
                let to = ptr::with_exposed_provenance_mut::<u8>(to);
                let from = self.at(from, length)?;
                // SAFETY: the code under test guarantees that `to` is writable.
                unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to, length) };
            }
            Copy::Within(to, from, length) => {
                let bytes = self.at(from, length)?.to_vec();
                self.at(to, length)?.copy_from_slice(&bytes);
            }
            Copy::Fill(at, value, length) => self.at(at, length)?.fill(value),
        }
        Ok(())
    }
}

/// The value of an attribute, with the size that the driver documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attribute {
    Byte(u8),
    Half(u32),
    Word(u64),
}
