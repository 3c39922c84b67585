use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::memory_region::{HugePageSize, HugePages, OwnedMemoryRegion, RegionAccessError};
use sideway_tests::process::alone;
use sideway_tests::recording::{Failure, Kind, Warnings, World};
use sideway_tests::requirements::did_not_run;

use crate::memory::regions::{expect, only};

/// Whether all pages of these bytes are mapped. Other threads may map freed pages again, so only a process with one
/// test may call this function.
fn is_mapped(at: *mut u8, len: usize) -> bool {
    let mut state = vec![0; len.div_ceil(4096)];
    // SAFETY: the kernel checks the range, and there is a byte for each page.
    unsafe { libc::mincore(at.cast(), len, state.as_mut_ptr()) == 0 }
}

fn bytes(region: &OwnedMemoryRegion, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; len];
    region.read_at(offset, &mut bytes).unwrap();
    bytes
}

#[test]
fn owned_pages_are_zeroed_and_keep_writes() {
    let world = World::new();
    for huge_pages in [HugePages::System, HugePages::Transparent] {
        let mut builder = world.pd.create_mr_builder();
        builder.setup_length(10_000).setup_huge_pages(huge_pages);
        builder.setup_access(AccessFlags::LocalWrite | AccessFlags::RemoteWrite);
        let mut region = builder.build().unwrap();
        let call = only(&world.recording);
        let (addr, len) = (region.addr(), region.len());
        expect(&call, "reg_mr", &[("addr", addr), ("length", 10_000), ("iova", addr), ("access", 3)]);
        assert_eq!((len, addr % 4096, region.as_ptr().addr() as u64), (10_000, 0, addr));
        assert_eq!(region.region().region_len(), 10_000);
        assert_eq!((region.lkey(), region.rkey()), (region.region().lkey(), region.region().rkey()));
        assert_eq!(bytes(&region, 0, len), vec![0; len]);
        region.write_at(9_990, b"0123456789").unwrap();
        region.write_at(3, b"abc").unwrap();
        assert_eq!(bytes(&region, 2, 5), b"\0abc\0");
        assert_eq!(bytes(&region, 9_989, 11), b"\x000123456789");
        region.close().unwrap();
        assert_eq!(world.recording.verbs(), ["dereg_mr"]);
    }
    world.end();
}

#[test]
fn out_of_range_access_is_an_error_without_effect() {
    let world = World::new();
    let mut region = world.pd.reg_owned_mr(100, AccessFlags::LocalWrite).unwrap();
    for (offset, length) in [(0, 101), (100, 1), (101, 0), (usize::MAX, 2), (1, 100)] {
        let error = RegionAccessError::OutOfRange { offset, length, region: 100 };
        let mut buffer = vec![7; length];
        assert_eq!(region.read_at(offset, &mut buffer), Err(error));
        assert_eq!(buffer, vec![7; length]);
        assert_eq!(region.write_at(offset, &buffer), Err(error));
        assert!(error.to_string().contains("exceed the region of 100 bytes"), "{error}");
    }
    assert_eq!(bytes(&region, 0, 100), vec![0; 100]);
    assert_eq!(region.read_at(100, &mut []), Ok(()));
    drop(region);
    world.end();
}

#[test]
fn entries_are_within_their_regions() {
    let world = World::new();
    let region = world.pd.reg_owned_mr(100, AccessFlags::LocalWrite).unwrap();
    let at = region.addr();
    for (entry, addr, length) in [
        (region.sge(..), at, 100),
        (region.sge(10..20), at + 10, 10),
        (region.sge(10..=20), at + 10, 11),
        (region.sge(90..), at + 90, 10),
        (region.sge(100..), at + 100, 0),
    ] {
        let entry = entry.unwrap();
        assert_eq!((entry.lkey(), entry.addr(), entry.length()), (region.lkey(), addr, length));
    }
    #[expect(clippy::reversed_empty_ranges, reason = "that is what is refused")]
    for entry in [
        region.sge(..101),
        region.sge(..=100),
        region.sge(101..),
        region.sge(20..10),
        region.sge(0..=usize::MAX),
        region.sge(usize::MAX..),
    ] {
        let error = entry.map(drop).unwrap_err();
        assert!(matches!(error, RegionAccessError::OutOfRange { region: 100, .. }), "{error}");
    }
    drop(region);

    // Untouched memory uses no pages, but not every machine permits this amount.
    let Ok(region) = world.pd.reg_owned_mr(5 << 30, AccessFlags::LocalWrite) else {
        return did_not_run("the system does not give 5 GiB");
    };
    assert_eq!(region.sge(..).map(drop), Err(RegionAccessError::EntryTooLong { length: 5 << 30 }));
    assert_eq!(region.sge(4 << 30..).unwrap().addr(), region.addr() + (4 << 30));
    drop(region);
    world.end();
}

#[test]
fn references_exist_only_if_no_peer_can_access_the_bytes() {
    let world = World::new();
    for (access, shared, exclusive) in [
        (AccessFlags::empty(), true, true),
        (AccessFlags::LocalWrite, true, true),
        (AccessFlags::LocalWrite | AccessFlags::RelaxedOrdering, true, true),
        (AccessFlags::RemoteRead, true, false),
        (AccessFlags::LocalWrite | AccessFlags::RemoteWrite, false, false),
        (AccessFlags::LocalWrite | AccessFlags::RemoteAtomic, false, false),
        (AccessFlags::MemoryWindowBind, false, false),
        (AccessFlags::from_bits_retain(1 << 13), false, false),
    ] {
        let mut region = world.pd.reg_owned_mr(64, access).unwrap();
        assert_eq!(region.access(), access);
        region.write_at(1, b"x").unwrap();
        match region.as_slice() {
            Ok(slice) => assert_eq!((shared, slice.len(), &slice[..3]), (true, 64, &b"\0x\0"[..])),
            Err(error) => {
                assert_eq!((shared, error), (false, RegionAccessError::PeersMayWrite(access)));
                assert!(error.to_string().contains("use read_at and write_at"), "{error}");
            }
        }
        match region.as_mut_slice() {
            Ok(slice) => {
                assert!(exclusive);
                slice[63] = 9;
                assert_eq!(bytes(&region, 62, 2), [0, 9]);
            }
            Err(error) => {
                assert!(!exclusive, "{error}");
                let mayread = RegionAccessError::PeersMayRead(access);
                assert_eq!(error, if shared { mayread } else { RegionAccessError::PeersMayWrite(access) });
            }
        }
    }
    world.end();
}

#[test]
fn failed_creation_reports_why_and_leaks_nothing() {
    let world = World::new();
    let error = world.pd.create_mr_builder().build().unwrap_err();
    assert_eq!(error.to_string(), "mmap: EINVAL (Invalid argument): the length is 0; set a length");
    let error = world.pd.reg_owned_mr(64, AccessFlags::ZeroBased).unwrap_err();
    assert!(error.to_string().contains("use reg_mr_iova"), "{error}");
    // More than any machine reserves.
    let mut builder = world.pd.create_mr_builder();
    builder.setup_length(1 << 46).setup_huge_pages(HugePages::Reserved(HugePageSize::MIB_2));
    let error = builder.build().unwrap_err();
    assert_eq!(error.verb(), "mmap");
    assert!(error.hint().unwrap().contains("huge pages of 2 MiB"), "{error}");
    drop(builder);
    assert_eq!(world.recording.verbs(), [""; 0]);

    world.recording.fail("reg_mr", 0, Failure::documented(libc::EINVAL));
    let error = world.pd.reg_owned_mr(64, AccessFlags::RemoteWrite).unwrap_err();
    assert_eq!(error.verb(), "ibv_reg_mr");
    assert!(error.to_string().contains("need LocalWrite"), "{error}");
    world.end();
}

#[test]
fn pages_are_freed_after_the_registration() {
    if !alone("memory::owned::pages_are_freed_after_the_registration", &[]) {
        return;
    }
    let world = World::new();
    let warnings = Warnings::listen();

    // The registration ends with its last owner, and the pages with it.
    let region = world.pd.reg_owned_mr(8192, AccessFlags::LocalWrite).unwrap();
    let (held, at) = (region.region().clone(), region.as_ptr());
    drop(region);
    assert!(is_mapped(at, 8192) && world.recording.live().contains(&Kind::MemoryRegion));
    drop(held);
    assert!(!is_mapped(at, 8192) && !world.recording.live().contains(&Kind::MemoryRegion));

    // The pages also stay if `close` finds another owner.
    let region = world.pd.reg_owned_mr(8192, AccessFlags::LocalWrite).unwrap();
    let (held, at) = (region.region().clone(), region.as_ptr());
    let error = region.close().unwrap_err();
    assert_eq!(error.errno().raw(), libc::EBUSY);
    assert!(error.to_string().contains("another owner"), "{error}");
    assert!(is_mapped(at, 8192));
    drop(held);
    assert!(!is_mapped(at, 8192));
    assert_eq!(warnings.take(), [""; 0]);

    // A region that cannot be deregistered keeps its pages, whether it is dropped or closed.
    for close in [false, true] {
        world.recording.fail("dereg_mr", 0, Failure::documented(libc::EBUSY));
        let region = world.pd.reg_owned_mr(8192, AccessFlags::LocalWrite).unwrap();
        let at = region.as_ptr();
        if close {
            assert_eq!(region.close().unwrap_err().to_string(), "ibv_dereg_mr: EBUSY (Device or resource busy)");
            assert_eq!(warnings.take(), [""; 0], "close returns the error itself");
        } else {
            drop(region);
            let lines = warnings.take();
            assert_eq!(lines.len(), 1, "{lines:?}");
            assert!(lines[0].starts_with("WARN: ibv_dereg_mr: EBUSY") && lines[0].contains("leaked"), "{lines:?}");
        }
        assert!(is_mapped(at, 8192), "the device may still write there");
        // SAFETY: the pages were leaked, and are mapped.
        unsafe { at.write(1) };
    }

    // If registering fails, no registration needs the pages.
    let before = std::fs::read_to_string("/proc/self/statm").unwrap();
    for _ in 0..64 {
        world.recording.fail("reg_mr", 0, Failure::documented(libc::ENOMEM));
        world.pd.reg_owned_mr(64 << 20, AccessFlags::LocalWrite).unwrap_err();
    }
    let pages = |text: &str| text.split(' ').next().unwrap().parse::<usize>().unwrap();
    let after = std::fs::read_to_string("/proc/self/statm").unwrap();
    assert!(pages(&after) < pages(&before) + 2 * (64 << 20) / 4096, "{before} {after}");
}

#[test]
fn forked_children_lack_the_pages() {
    let world = World::new();
    let region = world.pd.reg_owned_mr(4096, AccessFlags::LocalWrite).unwrap();
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    // The line of the mapping that contains the region; adjacent mappings of one kind are merged.
    let is_in = |line: &&str| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let number = |text| u64::from_str_radix(text, 16).ok();
        range
            .and_then(|(from, to)| Some(number(from)?..number(to)?))
            .is_some_and(|range| range.contains(&region.addr()))
    };
    let mut lines = maps.lines().skip_while(|line| !is_in(line));
    let flags = lines.find(|line| line.starts_with("VmFlags:")).unwrap();
    assert!(flags.split(' ').any(|flag| flag == "dc"), "do not copy on fork: {flags}");
    drop(region);
    world.end();
}
