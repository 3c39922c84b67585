//! Regions of GPU memory, with the fake CUDA driver.

use std::sync::Arc;

use rdma_cuda::Fake;

use crate::mem::domain::Domain;
use crate::mem::{ATOMIC, Backing, Buffer, Change, LOCAL_WRITE, Memory, READ, Region, WRITE};
use crate::sys::errno::Errno;
use crate::wire::bytes::cuda::locate;
use crate::wire::bytes::{Atomic, End, Fault, Place, Segment, copy, read_bytes, transfer, write_bytes};

fn memory() -> &'static Memory {
    Memory::of_process()
}

/// GPU memory that is registered as a region.
struct OnDevice {
    domain: Arc<Domain>,
    region: Arc<Region>,
    start: u64,
}

fn register(domain: &Arc<Domain>, start: u64, length: u64) -> Result<Arc<Region>, Errno> {
    memory().register(domain, Backing::Host(start as usize), length, start, LOCAL_WRITE | READ | WRITE | ATOMIC)
}

impl OnDevice {
    fn new(context: usize, length: usize) -> Self {
        let start = Fake::load().allocate(context, length);
        Self::at(start, length)
    }

    fn at(start: u64, length: usize) -> Self {
        let domain = Arc::new(Domain::new());
        let region = register(&domain, start, length as u64).unwrap();
        Self { domain, region, start }
    }

    fn segment(&self, offset: usize, length: usize) -> Segment {
        memory().local(&self.domain, self.region.key(), self.start + offset as u64, length as u64, true).unwrap()
    }

    fn atomic(&self, offset: u64, operation: Atomic) -> Result<u64, Fault> {
        let segment = memory().remote(&self.domain, 7, self.region.key(), self.start + offset, 8, ATOMIC)?;
        crate::wire::bytes::atomic(&segment, operation)
    }
}

impl Drop for OnDevice {
    fn drop(&mut self) {
        memory().deregister(&self.region).unwrap();
    }
}

/// Returns bytes of which each differs from its neighbours.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 7 + 1) as u8).collect()
}

#[test]
fn bytes_are_copied_at_any_offset() {
    let fake = Fake::load();
    let gpu = OnDevice::new(fake.context(), 300);
    for (offset, length) in [(0, 300), (0, 1), (3, 7), (8, 8), (5, 64), (299, 1)] {
        fake.set(gpu.start, &[0; 300]);
        let bytes = pattern(length);
        write_bytes(&bytes, &[gpu.segment(offset, length)]).unwrap();
        let mut expected = vec![0; 300];
        expected[offset..offset + length].copy_from_slice(&bytes);
        assert_eq!(fake.get(gpu.start, 300), expected, "{offset} {length}");
        let mut back = vec![0; length];
        read_bytes(&[gpu.segment(offset, length)], &mut back).unwrap();
        assert_eq!(back, bytes, "{offset} {length}");
    }
    assert!(fake.current().is_empty());
}

#[test]
fn last_word_is_copied_last_and_zero_bytes_make_no_call() {
    let fake = Fake::load();
    let gpu = OnDevice::new(fake.context(), 64);
    fake.calls();
    write_bytes(&[1; 30], &[gpu.segment(0, 30)]).unwrap();
    assert_eq!(fake.copies(), [("cuMemcpyHtoDAsync", 24), ("cuMemcpyHtoDAsync", 6)]);
    write_bytes(&[1; 8], &[gpu.segment(8, 8)]).unwrap();
    assert_eq!(fake.copies(), [("cuMemcpyHtoDAsync", 8)]);
    copy(&[gpu.segment(0, 20)], &[gpu.segment(32, 20)]).unwrap();
    assert_eq!(fake.copies(), [("cuMemcpyDtoDAsync", 16), ("cuMemcpyDtoDAsync", 4)]);
    write_bytes(&[], &[gpu.segment(0, 8)]).unwrap();
    let mut empty = gpu.segment(0, 8);
    empty.truncate(0);
    transfer(&[gpu.segment(0, 8)], &[empty]).unwrap();
    assert_eq!(fake.copies(), []);
}

#[test]
fn lists_mix_host_and_gpu_memory() {
    let fake = Fake::load();
    let context = fake.context();
    let (one, other) = (OnDevice::new(context, 100), OnDevice::new(fake.context(), 100));
    let host = Buffer::new(100, 64).unwrap();
    let on_host = |offset, length| {
        // SAFETY: the bytes belong to the buffer, which outlives the segments.
        unsafe { Segment::of_raw(std::ptr::with_exposed_provenance_mut(host.address(offset)), length) }
    };
    fake.set(one.start, &pattern(100));
    write_bytes(&[0xaa; 100], &[on_host(0, 100)]).unwrap();
    let from = [one.segment(0, 10), on_host(0, 3), one.segment(10, 17), Segment::null(5), on_host(3, 4)];
    let to = [other.segment(0, 5), on_host(50, 20), one.segment(60, 4), other.segment(5, 10)];
    copy(&from, &to).unwrap();

    let pattern = pattern(100);
    let mut expected = pattern[..10].to_vec();
    expected.extend([0xaa; 3]);
    expected.extend(&pattern[10..27]);
    expected.extend([0; 5]);
    expected.extend([0xaa; 4]);
    let mut found = fake.get(other.start, 5);
    let mut part = vec![0; 20];
    read_bytes(&[on_host(50, 20)], &mut part).unwrap();
    found.extend(part);
    found.extend(fake.get(one.start + 60, 4));
    found.extend(fake.get(other.start + 5, 10));
    assert_eq!(found, expected);
    assert_eq!(fake.get(other.start + 15, 85), [0; 85]);
    assert!(fake.calls().contains(&"cuMemcpyPeerAsync"));
}

#[test]
fn overlapping_memory_is_moved() {
    let fake = Fake::load();
    // The length exceeds the host buffer, so the copy takes several steps.
    let length = 2_500;
    let gpu = OnDevice::new(fake.context(), length + 100);
    for (from, to) in [(0, 100), (100, 0), (0, 0), (0, 1), (1, 0)] {
        let mut expected = pattern(length + 100);
        fake.set(gpu.start, &expected);
        expected.copy_within(from..from + length, to);
        copy(&[gpu.segment(from, length)], &[gpu.segment(to, length)]).unwrap();
        assert!(fake.get(gpu.start, length + 100) == expected, "{from} {to}");
    }
}

#[test]
fn region_beyond_its_allocation_is_refused() {
    let fake = Fake::load();
    let start = fake.allocate(fake.context(), 64);
    let domain = Arc::new(Domain::new());
    for (offset, length) in [(0, 65), (1, 64), (63, 2), (0, u64::MAX >> 1)] {
        assert_eq!(register(&domain, start + offset, length).err(), Some(Errno::FAULT), "{offset} {length}");
    }
    for (offset, length) in [(0, 64), (63, 1), (5, 10)] {
        memory().deregister(&register(&domain, start + offset, length).unwrap()).unwrap();
    }
}

#[test]
fn managed_and_pinned_memory_is_host_memory() {
    let fake = Fake::load();
    let start = fake.allocate(fake.context(), 64);
    for (kind, is_managed, is_device) in [(2, false, true), (2, true, false), (1, false, false), (0, false, false)] {
        fake.is_kind(start, kind, is_managed);
        assert_eq!(locate(start, 64).unwrap().is_some(), is_device, "{kind} {is_managed}");
    }
    assert_eq!(locate(0x1000, 64), Ok(None));
    fake.fails(Some(("cuPointerGetAttributes", 3)));
    assert_eq!(locate(start, 64), Ok(None));
    fake.fails(None);
}

#[test]
fn context_of_the_thread_is_restored_even_after_errors() {
    let fake = Fake::load();
    let gpu = OnDevice::new(fake.context(), 64);
    let own = fake.context();
    fake.make_current(own);
    let mut bytes = [0; 20];
    for name in ["", "cuCtxPushCurrent", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuStreamSynchronize"] {
        fake.fails(Some((name, 999)));
        let written = write_bytes(&[1; 20], &[gpu.segment(0, 20)]);
        let read = read_bytes(&[gpu.segment(0, 20)], &mut bytes);
        fake.fails(None);
        assert_eq!(fake.current(), [own], "{name}");
        assert_eq!(written.is_err(), !matches!(name, "" | "cuMemcpyDtoHAsync"), "{name}");
        assert_eq!(read.is_err(), !matches!(name, "" | "cuMemcpyHtoDAsync"), "{name}");
    }
    let start = fake.allocate(fake.context(), 8);
    for (name, code, errno) in [
        ("cuCtxPushCurrent", 201, Errno::FAULT),
        ("cuMemAlloc", 2, Errno::NO_MEMORY),
        ("cuStreamCreate", 2, Errno::NO_MEMORY),
    ] {
        fake.fails(Some((name, code)));
        assert_eq!(register(&gpu.domain, start, 8).err(), Some(errno), "{name}");
        assert_eq!(fake.current(), [own], "{name}");
    }
    fake.fails(None);
    assert_eq!(locate(start, 8).map(|place| place.is_some()), Ok(true));
}

#[test]
fn freed_memory_is_an_error_of_its_side() {
    let fake = Fake::load();
    let context = fake.context();
    let (freed, replaced, good) = (OnDevice::new(context, 64), OnDevice::new(context, 64), OnDevice::new(context, 64));
    fake.free(freed.start);
    fake.replace(replaced.start);
    for bad in [&freed, &replaced] {
        let [to, from] = [
            transfer(&[good.segment(0, 8)], &[bad.segment(0, 8)]),
            transfer(&[bad.segment(0, 8)], &[good.segment(0, 8)]),
        ];
        assert_eq!(to, Err((End::To, Fault::Unmapped)));
        assert_eq!(from, Err((End::From, Fault::Unmapped)));
        assert_eq!(write_bytes(&[1], &[bad.segment(0, 8)]), Err(Fault::Unmapped));
        assert_eq!(read_bytes(&[bad.segment(0, 8)], &mut [0; 8]), Err(Fault::Unmapped));
        assert_eq!(bad.atomic(0, Atomic::FetchAdd(1)), Err(Fault::Unmapped));
    }
    assert_eq!(fake.get(replaced.start, 64), [0; 64]);
    // After the region is registered again with this memory, requests access the new memory.
    let backing = Backing::Host(replaced.start as usize);
    let change = Change { translation: Some((backing, 64, replaced.start)), ..Change::default() };
    memory().reregister(&replaced.region, change).unwrap();
    write_bytes(&[5; 8], &[replaced.segment(0, 8)]).unwrap();
    assert_eq!(fake.get(replaced.start, 8), [5; 8]);
    let change = Change { access: Some(LOCAL_WRITE), ..Change::default() };
    assert_eq!(memory().reregister(&freed.region, change).err(), Some(Errno::FAULT).filter(|_| !cfg!(miri)));
}

#[test]
fn context_at_a_reused_address_has_its_own_stream() {
    let fake = Fake::load();
    let context = fake.context();
    let first = OnDevice::new(context, 64);
    write_bytes(&[1], &[first.segment(0, 1)]).unwrap();
    fake.destroy(context);
    // Using the old stream would crash the process.
    let second = OnDevice::new(context, 64);
    write_bytes(&[2; 9], &[second.segment(0, 9)]).unwrap();
    assert_eq!(fake.get(second.start, 9), [2; 9]);
    assert_eq!(write_bytes(&[1], &[first.segment(0, 1)]), Err(Fault::Unmapped));
    let third = OnDevice::new(context, 64);
    let number = |gpu: &OnDevice| match gpu.segment(0, 1).place() {
        Place::Device { card, .. } => card,
        other => panic!("{other:?}"),
    };
    assert_eq!(number(&third), number(&second));
    assert_ne!(number(&third), number(&first));
}

#[test]
fn memory_without_context_uses_the_primary_context() {
    let fake = Fake::load();
    let gpu = OnDevice::new(0, 64);
    write_bytes(&[3; 64], &[gpu.segment(0, 64)]).unwrap();
    assert_eq!(fake.get(gpu.start, 64), [3; 64]);
}

#[test]
fn atomics_are_atomic_with_each_other() {
    use Atomic;
    let fake = Fake::load();
    let gpu = OnDevice::new(fake.context(), 64);
    assert_eq!(gpu.atomic(8, Atomic::FetchAdd(5)), Ok(0));
    assert_eq!(gpu.atomic(8, Atomic::CompareSwap { compare: 4, swap: 9 }), Ok(5));
    assert_eq!(gpu.atomic(8, Atomic::CompareSwap { compare: 5, swap: 9 }), Ok(5));
    assert_eq!(gpu.atomic(8, Atomic::Store(u64::MAX)), Ok(9));
    assert_eq!(gpu.atomic(8, Atomic::FetchAdd(2)), Ok(u64::MAX));
    assert_eq!(fake.get(gpu.start + 8, 8), 1u64.to_ne_bytes());
    assert_eq!(gpu.atomic(4, Atomic::FetchAdd(1)), Err(Fault::Alignment));

    const ROUNDS: u64 = if cfg!(miri) { 10 } else { 500 };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    gpu.atomic(16, Atomic::FetchAdd(1)).unwrap();
                }
            });
        }
    });
    assert_eq!(fake.get(gpu.start + 16, 8), (2 * ROUNDS).to_ne_bytes());
}

#[test]
fn null_region_clears_and_discards() {
    let fake = Fake::load();
    let gpu = OnDevice::new(fake.context(), 64);
    fake.set(gpu.start, &[1; 64]);
    copy(&[Segment::null(21)], &[gpu.segment(3, 21)]).unwrap();
    assert_eq!(fake.get(gpu.start, 26), [&[1; 3][..], &[0; 21], &[1; 2]].concat());
    copy(&[gpu.segment(0, 64)], &[Segment::null(64)]).unwrap();
}
