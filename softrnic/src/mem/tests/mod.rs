//! Tests of regions and their access checks.

// CUDA has no driver of 32 bits.
#[cfg(target_pointer_width = "64")]
mod cuda;
mod windows;

use std::collections::HashSet;
use std::ptr;
use std::sync::{Arc, Barrier};
use std::thread;

use super::*;
use crate::mem::Bind;
use crate::sys::errno::Errno;
use crate::wire::bytes::{Atomic, atomic, read_bytes, write_bytes};

const ALL: Access = LOCAL_WRITE | WRITE | READ | ATOMIC | MW_BIND;

fn memory() -> &'static Memory {
    Memory::of_process()
}

fn domain() -> Arc<Domain> {
    Arc::new(Domain::new())
}

/// A registered region whose bytes have known values.
struct Known {
    domain: Arc<Domain>,
    region: Arc<Region>,
    keep: Arc<Buffer>,
}

/// The I/O virtual address.
const IOVA: u64 = 0x1_0000;
const LENGTH: u64 = 64;

impl Known {
    fn new(access: Access) -> Self {
        Self::on(&domain(), access)
    }

    fn on(domain: &Arc<Domain>, access: Access) -> Self {
        let keep = Arc::new(Buffer::new(LENGTH as usize, 64).unwrap());
        let backing = Backing::Own { address: keep.address(0), keep: keep.clone() };
        let region = memory().register(domain, backing, LENGTH, IOVA, access).unwrap();
        Self { domain: domain.clone(), region, keep }
    }

    fn key(&self) -> u32 {
        self.region.key()
    }

    fn local(&self, address: u64, length: u64, is_written: bool) -> Result<Segment, Fault> {
        memory().local(&self.domain, self.key(), address, length, is_written)
    }

    fn remote(&self, address: u64, length: u64, access: Access) -> Result<Segment, Fault> {
        memory().remote(&self.domain, 7, self.key(), address, length, access)
    }

    fn bind(&self, window: &Arc<Window>, rkey: u32, access: Access) -> Bind {
        Bind { window: window.clone(), rkey, lkey: self.key(), address: IOVA + 8, length: 16, access }
    }
}

fn fault<T>(result: Result<T, Fault>) -> Option<Fault> {
    result.err()
}

fn bytes_of(segment: Segment) -> Vec<u8> {
    let mut bytes = vec![0xee; segment.len()];
    read_bytes(&[segment], &mut bytes).unwrap();
    bytes
}

#[test]
fn unknown_key_is_refused() {
    let known = Known::new(ALL);
    for key in [0, 1, 0xff, u32::MAX, known.key() ^ 1, known.key() ^ 0x100_0000, known.key().wrapping_add(0x80)] {
        assert_eq!(fault(memory().local(&known.domain, key, IOVA, 1, false)), Some(Fault::Key), "{key:#x}");
        assert_eq!(fault(memory().remote(&known.domain, 7, key, IOVA, 1, READ)), Some(Fault::Key), "{key:#x}");
    }
}

#[test]
fn zero_bytes_require_no_key() {
    let known = Known::new(0);
    assert!(memory().local(&domain(), 0, 0, 0, true).unwrap().is_empty());
    assert!(memory().remote(&domain(), 1, known.key(), u64::MAX, 0, WRITE).unwrap().is_empty());
}

#[test]
fn reused_slots_get_new_keys() {
    let domain = domain();
    let mut seen = HashSet::new();
    for _ in 0..if cfg!(miri) { 100 } else { 2_000 } {
        let known = Known::on(&domain, READ);
        let key = known.key();
        assert_ne!(key >> 8, 0);
        assert!(seen.insert(key), "{key:#x} was reused");
        memory().deregister(&known.region).unwrap();
        assert_eq!(fault(memory().remote(&domain, 7, key, IOVA, 1, READ)), Some(Fault::Key));
        assert_eq!(memory().deregister(&known.region), Err(Errno::INVALID));
    }
}

#[test]
fn access_beyond_the_region_is_refused() {
    let known = Known::new(ALL);
    let end = IOVA + LENGTH;
    for (address, length) in [(IOVA, LENGTH), (IOVA, 1), (end - 1, 1), (IOVA + 8, LENGTH - 8)] {
        assert_eq!(known.local(address, length, true).unwrap().len() as u64, length);
        assert_eq!(known.remote(address, length, WRITE).unwrap().len() as u64, length);
    }
    let outside = [
        (IOVA - 1, 1),
        (IOVA - 1, LENGTH),
        (IOVA, LENGTH + 1),
        (end, 1),
        (end - 1, 2),
        (end + 1, 1),
        (IOVA, u64::MAX),
        (IOVA + 1, u64::MAX),
        (IOVA + 1, u64::MAX - IOVA),
        (u64::MAX, 1),
        (u64::MAX, u64::MAX),
        (0, u64::MAX),
    ];
    for (address, length) in outside {
        assert_eq!(fault(known.local(address, length, true)), Some(Fault::Bounds), "{address:#x} {length:#x}");
        assert_eq!(fault(known.remote(address, length, WRITE)), Some(Fault::Bounds), "{address:#x} {length:#x}");
    }
}

#[test]
fn region_may_end_at_the_last_address() {
    let domain = domain();
    let keep = Arc::new(Buffer::new(64, 64).unwrap());
    let register = |length, iova| {
        let backing = Backing::Own { address: keep.address(0), keep: keep.clone() };
        memory().register(&domain, backing, length, iova, LOCAL_WRITE)
    };
    let region = register(64, u64::MAX - 63).unwrap();
    let local = |address, length| memory().local(&domain, region.key(), address, length, true);
    assert_eq!(local(u64::MAX, 1).unwrap().len(), 1);
    assert_eq!(local(u64::MAX - 63, 64).unwrap().len(), 64);
    assert_eq!(fault(local(u64::MAX, 2)), Some(Fault::Bounds));
    assert_eq!(fault(local(0, 1)), Some(Fault::Bounds));
    assert_eq!(register(64, u64::MAX - 62).err(), Some(Errno::INVALID));
    let empty = register(0, u64::MAX).unwrap();
    assert_eq!(fault(memory().local(&domain, empty.key(), u64::MAX, 1, true)), Some(Fault::Bounds));
    let host = Backing::Host(keep.address(0));
    assert_eq!(memory().register(&domain, host, 0, 0, LOCAL_WRITE).err(), Some(Errno::INVALID));
}

#[test]
fn each_operation_requires_its_right() {
    for access in [0, LOCAL_WRITE, READ, READ | LOCAL_WRITE, WRITE | LOCAL_WRITE, ATOMIC | LOCAL_WRITE, ALL] {
        let known = Known::new(access);
        assert!(known.local(IOVA, 8, false).is_ok());
        let expected = |right| (access & right == 0).then_some(Fault::Rights);
        assert_eq!(fault(known.local(IOVA, 8, true)), expected(LOCAL_WRITE));
        for right in [READ, WRITE, ATOMIC, FLUSH_GLOBAL] {
            assert_eq!(fault(known.remote(IOVA, 8, right)), expected(right), "{access:#x} {right:#x}");
        }
        let both = (access & (READ | WRITE) != READ | WRITE).then_some(Fault::Rights);
        assert_eq!(fault(known.remote(IOVA, 8, READ | WRITE)), both);
    }
}

#[test]
fn whole_region_is_found_by_its_key() {
    let known = Known::new(LOCAL_WRITE | FLUSH_GLOBAL);
    let whole = |key, access| memory().whole(&known.domain, 7, key, access);
    assert_eq!(whole(known.key(), FLUSH_GLOBAL).unwrap().len() as u64, LENGTH);
    assert_eq!(fault(whole(known.key(), READ)), Some(Fault::Rights));
    assert_eq!(fault(whole(known.key() ^ 1, FLUSH_GLOBAL)), Some(Fault::Key));
    assert_eq!(fault(memory().whole(&domain(), 7, known.key(), FLUSH_GLOBAL)), Some(Fault::Domain));
}

#[test]
fn inconsistent_rights_are_refused() {
    let domain = domain();
    let register = |access| memory().register(&domain, Backing::Null, 8, 0, access).map(drop);
    for access in [WRITE, ATOMIC, WRITE | READ | MW_BIND, LOCAL_WRITE | 1 << 10, 1 << 9, 1 << 31] {
        assert_eq!(register(access), Err(Errno::INVALID), "{access:#x}");
    }
    assert_eq!(register(ibv_access_flags::IBV_ACCESS_RELAXED_ORDERING.0 | LOCAL_WRITE | 1 << 29), Ok(()));
    assert_eq!(register(ALL | HUGETLB | FLUSH_GLOBAL), Ok(()));
}

#[test]
#[cfg_attr(miri, ignore = "makes system calls")]
fn on_demand_paging_populates_no_page() {
    let size = 4 * page_size();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the mapping is new and anonymous.
    let start =
        unsafe { libc::mmap(ptr::null_mut(), size, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    let populated = || {
        let mut pages = [0_u8; 4];
        // SAFETY: the mapping has four pages, and the array one byte for each.
        assert_eq!(unsafe { libc::mincore(start, size, pages.as_mut_ptr()) }, 0);
        pages.map(|page| page & 1)
    };
    let domain = domain();
    let register =
        |address, length, access| memory().register(&domain, Backing::Host(address), length, address as u64, access);
    let at = start.expose_provenance();
    let region = register(at, size as u64, LOCAL_WRITE | WRITE | READ | ON_DEMAND).unwrap();
    assert_eq!(populated(), [0; 4]);
    let second = at as u64 + page_size() as u64;
    let into = memory().remote(&domain, 7, region.key(), second, 4, WRITE).unwrap();
    write_bytes(b"word", &[into]).unwrap();
    let from = memory().local(&domain, region.key(), second, 4, false).unwrap();
    assert_eq!(bytes_of(from), b"word");
    assert_eq!(populated(), [0, 1, 0, 0]);
    memory().deregister(&region).unwrap();

    let region = register(at, size as u64, LOCAL_WRITE).unwrap();
    assert_eq!(populated(), [1; 4]);
    memory().deregister(&region).unwrap();
    assert_eq!(
        register(0, usize::MAX as u64, LOCAL_WRITE | ON_DEMAND).map(drop),
        Err(Errno::NOT_SUPPORTED),
        "implicit"
    );
    // SAFETY: this test created the mapping, which has no users.
    assert_eq!(unsafe { libc::munmap(start, size) }, 0);
    assert_eq!(register(at, size as u64, LOCAL_WRITE | ON_DEMAND).map(drop), Err(Errno::FAULT));
}

#[test]
fn memory_of_another_domain_is_refused() {
    let known = Known::new(ALL);
    let other = domain();
    assert_eq!(fault(memory().local(&other, known.key(), IOVA, 1, false)), Some(Fault::Domain));
    assert_eq!(fault(memory().remote(&other, 7, known.key(), IOVA, 1, READ)), Some(Fault::Domain));
}

#[test]
fn zero_based_region_starts_at_zero() {
    let known = Known::new(LOCAL_WRITE | ZERO_BASED);
    assert_eq!(known.local(0, LENGTH, true).unwrap().len() as u64, LENGTH);
    assert_eq!(fault(known.local(IOVA, 1, true)), Some(Fault::Bounds));
}

#[test]
#[cfg_attr(miri, ignore = "makes system calls")]
fn unmapped_memory_is_not_registered() {
    let register = |address, length| {
        memory().register(&domain(), Backing::Host(address), length, address as u64, LOCAL_WRITE).map(drop)
    };
    assert_eq!(register(0, 64), Err(Errno::FAULT));
    assert_eq!(register(usize::MAX - 100, 64), Err(Errno::INVALID));
    let mut bytes = vec![0u8; 10_000];
    assert_eq!(register(bytes.as_mut_ptr().expose_provenance(), 10_000), Ok(()));
}

#[test]
fn deregistration_waits_for_users() {
    let known = Known::new(ALL);
    let held = Barrier::new(2);
    thread::scope(|scope| {
        let (known, held) = (&known, &held);
        scope.spawn(move || {
            let mut segment = known.local(IOVA, LENGTH, true).unwrap();
            let part = segment.split_to(8);
            held.wait();
            // The deregistration has begun: new accesses are refused.
            while known.local(IOVA, 1, false).is_ok() {
                thread::yield_now();
            }
            drop(segment);
            for _ in 0..1_000 {
                thread::yield_now();
            }
            write_bytes(&[7; 8], &[part]).unwrap();
        });
        held.wait();
        memory().deregister(&known.region).unwrap();
        let mut bytes = [0; 8];
        // SAFETY: the buffer belongs to this test, and is no longer written.
        let own = unsafe { Segment::of_raw(ptr::with_exposed_provenance_mut(known.keep.address(0)), 8) };
        read_bytes(&[own], &mut bytes).unwrap();
        assert_eq!(bytes, [7; 8]);
    });
}

#[test]
fn reregistered_region_keeps_its_key() {
    let known = Known::new(READ);
    let other = domain();
    let change = |change| memory().reregister(&known.region, change);

    change(Change { domain: Some(&other), ..Change::default() }).unwrap();
    assert_eq!(fault(known.local(IOVA, 1, false)), Some(Fault::Domain));
    assert!(memory().local(&other, known.key(), IOVA, 1, false).is_ok());
    change(Change { domain: Some(&known.domain), ..Change::default() }).unwrap();

    assert_eq!(fault(known.local(IOVA, 1, true)), Some(Fault::Rights));
    change(Change { access: Some(LOCAL_WRITE), ..Change::default() }).unwrap();
    assert!(known.local(IOVA, 1, true).is_ok());
    assert_eq!(fault(known.remote(IOVA, 1, READ)), Some(Fault::Rights));
    assert_eq!(change(Change { access: Some(WRITE), ..Change::default() }), Err(Errno::INVALID));
    assert!(known.local(IOVA, 1, true).is_ok());

    let keep = Arc::new(Buffer::new(8, 64).unwrap());
    let backing = Backing::Own { address: keep.address(0), keep: keep.clone() };
    let all = Change { domain: Some(&other), translation: Some((backing, 8, 0x9000)), access: Some(ALL) };
    change(all).unwrap();
    let segment = memory().remote(&other, 7, known.key(), 0x9000, 8, WRITE).unwrap();
    write_bytes(b"anew....", &[segment]).unwrap();
    assert_eq!(bytes_of(memory().local(&other, known.key(), 0x9000, 8, false).unwrap()), b"anew....");
    assert_eq!(fault(memory().local(&other, known.key(), IOVA, 1, false)), Some(Fault::Bounds));

    memory().deregister(&known.region).unwrap();
    assert_eq!(change(Change::default()), Err(Errno::INVALID));
}

#[test]
fn null_region_reads_zeros_and_discards_writes() {
    let domain = domain();
    const LAST: u64 = usize::MAX as u64;
    let region = memory().register(&domain, Backing::Null, LAST, 0, LOCAL_WRITE).unwrap();
    let null = || memory().local(&domain, region.key(), LAST - 9, 9, true).unwrap();
    write_bytes(&[1; 9], &[null()]).unwrap();
    assert_eq!(bytes_of(null()), [0; 9]);
    assert_eq!(atomic(&null(), Atomic::FetchAdd(1)), Ok(0));
    assert_eq!(fault(memory().local(&domain, region.key(), LAST, 1, true)), Some(Fault::Bounds));
    memory().deregister(&region).unwrap();
}

#[test]
fn atomic_requires_eight_aligned_bytes() {
    let known = Known::new(ALL);
    let at = |address| known.remote(address, 8, ATOMIC);
    assert_eq!(atomic(&at(IOVA + 8).unwrap(), Atomic::FetchAdd(5)), Ok(0));
    assert_eq!(atomic(&at(IOVA + 8).unwrap(), Atomic::FetchAdd(u64::MAX)), Ok(5));
    assert_eq!(atomic(&at(IOVA + 8).unwrap(), Atomic::CompareSwap { compare: 5, swap: 9 }), Ok(4));
    assert_eq!(atomic(&at(IOVA + 8).unwrap(), Atomic::CompareSwap { compare: 4, swap: 9 }), Ok(4));
    assert_eq!(atomic(&at(IOVA + 8).unwrap(), Atomic::Store(1)), Ok(9));
    assert_eq!(bytes_of(known.local(IOVA + 8, 8, false).unwrap()), 1u64.to_ne_bytes());
    for address in [IOVA + 1, IOVA + 4, IOVA + 12] {
        assert_eq!(fault(at(address)), Some(Fault::Alignment));
    }
    assert_eq!(fault(at(IOVA + LENGTH - 4)), Some(Fault::Bounds));
    assert_eq!(atomic(&known.local(IOVA + 1, 8, true).unwrap(), Atomic::Store(1)), Err(Fault::Alignment));
    assert_eq!(atomic(&known.local(IOVA, 7, true).unwrap(), Atomic::Store(1)), Err(Fault::Bounds));
}

#[test]
fn atomic_requires_alignment_in_memory_too() {
    let domain = domain();
    let keep = Arc::new(Buffer::new(64, 64).unwrap());
    let backing = Backing::Own { address: keep.address(4), keep: keep.clone() };
    let region = memory().register(&domain, backing, 32, 0, ALL | ZERO_BASED).unwrap();
    assert_eq!(fault(memory().remote(&domain, 7, region.key(), 8, 8, ATOMIC)), Some(Fault::Alignment));
    assert_eq!(fault(memory().remote(&domain, 7, region.key(), 4, 8, ATOMIC)), Some(Fault::Alignment));
    memory().deregister(&region).unwrap();
}
