//! Tests of windows.

use super::*;
use crate::wire::bytes::write_bytes;

fn window(known: &Known, is_type_2: bool) -> Arc<Window> {
    memory().window(&known.domain, is_type_2).unwrap()
}

/// Returns the key with another variant.
fn variant(key: u32, by: u32) -> u32 {
    key & !0xff | key.wrapping_add(by) & 0xff
}

fn remote(known: &Known, number: u32, rkey: u32, address: u64, access: Access) -> Option<Fault> {
    fault(memory().remote(&known.domain, number, rkey, address, 8, access))
}

#[test]
fn unbound_window_is_refused() {
    let known = Known::new(ALL);
    for is_type_2 in [false, true] {
        let window = window(&known, is_type_2);
        assert_eq!(remote(&known, 7, window.key(), IOVA + 8, READ), Some(Fault::Key));
        memory().free_window(&window).unwrap();
        assert_eq!(memory().free_window(&window), Err(Errno::INVALID));
    }
}

#[test]
fn type_1_window_serves_all_qps_of_the_domain_and_can_be_rebound() {
    let known = Known::new(ALL);
    let window = window(&known, false);
    let first = variant(window.key(), 1);
    memory().bind(&known.domain, 7, &known.bind(&window, first, READ)).unwrap();
    assert_eq!(remote(&known, 8, first, IOVA + 16, READ), None);
    assert_eq!(remote(&known, 8, first, IOVA + 16, WRITE), Some(Fault::Rights));
    assert_eq!(remote(&known, 8, first, IOVA, READ), Some(Fault::Bounds));
    assert_eq!(remote(&known, 8, first, IOVA + 17, READ), Some(Fault::Bounds));
    assert_eq!(fault(memory().remote(&domain(), 8, first, IOVA + 16, 8, READ)), Some(Fault::Domain));
    assert_eq!(fault(memory().local(&known.domain, first, IOVA + 16, 8, false)), Some(Fault::Key));

    let second = variant(first, 1);
    memory().bind(&known.domain, 7, &known.bind(&window, second, WRITE)).unwrap();
    assert_eq!(remote(&known, 8, first, IOVA + 16, READ), Some(Fault::Key));
    assert_eq!(remote(&known, 8, second, IOVA + 16, WRITE), None);
    assert_eq!(memory().invalidate(&known.domain, 7, second), Err(Fault::Rights));

    let third = variant(second, 1);
    memory().bind(&known.domain, 7, &Bind { length: 0, ..known.bind(&window, third, 0) }).unwrap();
    assert_eq!(remote(&known, 8, second, IOVA + 16, WRITE), Some(Fault::Key));
    assert_eq!(remote(&known, 8, third, IOVA + 16, WRITE), Some(Fault::Key));
    memory().deregister(&known.region).unwrap();
    memory().free_window(&window).unwrap();
}

#[test]
fn type_2_window_serves_its_qp_until_invalidated() {
    let known = Known::new(ALL);
    let window = window(&known, true);
    let key = variant(window.key(), 77);
    memory().bind(&known.domain, 7, &known.bind(&window, key, READ | ATOMIC)).unwrap();
    assert_eq!(remote(&known, 7, key, IOVA + 16, ATOMIC), None);
    assert_eq!(remote(&known, 8, key, IOVA + 16, READ), Some(Fault::Domain));
    let again = known.bind(&window, variant(key, 1), READ);
    assert_eq!(memory().bind(&known.domain, 7, &again), Err(Fault::Rights));

    assert_eq!(memory().invalidate(&known.domain, 8, key), Err(Fault::Domain));
    assert_eq!(memory().invalidate(&domain(), 7, key), Err(Fault::Domain));
    assert_eq!(memory().invalidate(&known.domain, 7, variant(key, 1)), Err(Fault::Key));
    assert_eq!(memory().invalidate(&known.domain, 7, key), Ok(()));
    assert_eq!(remote(&known, 7, key, IOVA + 16, READ), Some(Fault::Key));
    assert_eq!(memory().invalidate(&known.domain, 7, key), Err(Fault::Key));

    memory().bind(&known.domain, 8, &again).unwrap();
    assert_eq!(remote(&known, 8, again.rkey, IOVA + 16, READ), None);
    memory().free_window(&window).unwrap();
    assert_eq!(remote(&known, 8, again.rkey, IOVA + 16, READ), Some(Fault::Key));
    assert_eq!(memory().bind(&known.domain, 8, &again), Err(Fault::Key));
}

#[test]
fn region_with_a_bound_window_is_busy() {
    let known = Known::new(ALL);
    let window = window(&known, true);
    let bind = known.bind(&window, window.key(), READ);
    memory().bind(&known.domain, 7, &bind).unwrap();
    assert_eq!(memory().deregister(&known.region), Err(Errno::BUSY));
    let change = Change { access: Some(0), ..Change::default() };
    assert_eq!(memory().reregister(&known.region, change), Err(Errno::BUSY));
    memory().free_window(&window).unwrap();
    memory().deregister(&known.region).unwrap();
}

#[test]
fn refused_bind_changes_nothing() {
    let known = Known::new(ALL);
    let (one, two) = (window(&known, false), window(&known, true));
    let good = known.bind(&two, two.key(), READ);
    let end = IOVA + LENGTH;
    let unbindable = Known::on(&known.domain, LOCAL_WRITE | READ);
    let read_only = Known::on(&known.domain, READ | MW_BIND);
    let zero_based = Known::on(&known.domain, ALL | ZERO_BASED);
    let elsewhere = Known::new(ALL);
    let wrong = [
        (Bind { rkey: good.rkey ^ 0x100, ..good.clone() }, Fault::Key),
        (Bind { lkey: 0, ..good.clone() }, Fault::Key),
        (Bind { lkey: known.key() ^ 1, ..good.clone() }, Fault::Key),
        (Bind { length: 0, ..good.clone() }, Fault::Rights),
        (Bind { address: IOVA - 1, ..good.clone() }, Fault::Bounds),
        (Bind { address: end - 8, ..good.clone() }, Fault::Bounds),
        (Bind { address: u64::MAX, ..good.clone() }, Fault::Bounds),
        (Bind { length: u64::MAX, ..good.clone() }, Fault::Bounds),
        (Bind { access: 1 << 20, ..good.clone() }, Fault::Rights),
        (Bind { lkey: unbindable.key(), ..good.clone() }, Fault::Rights),
        (Bind { lkey: read_only.key(), access: WRITE, ..good.clone() }, Fault::Rights),
        (Bind { lkey: read_only.key(), access: ATOMIC, ..good.clone() }, Fault::Rights),
        (Bind { lkey: zero_based.key(), address: 0, ..good.clone() }, Fault::Rights),
        (Bind { lkey: elsewhere.key(), ..good.clone() }, Fault::Domain),
        (known.bind(&one, one.key(), READ | ZERO_BASED), Fault::Rights),
    ];
    for (bind, fault) in &wrong {
        assert_eq!(memory().bind(&known.domain, 7, bind), Err(*fault), "{bind:?}");
    }
    assert_eq!(memory().bind(&domain(), 7, &good), Err(Fault::Domain));
    memory().bind(&known.domain, 7, &Bind { lkey: read_only.key(), ..good }).unwrap();
    for known in [&known, &unbindable, &zero_based, &elsewhere] {
        memory().deregister(&known.region).unwrap();
    }
    assert_eq!(memory().deregister(&read_only.region), Err(Errno::BUSY));
    memory().free_window(&two).unwrap();
    memory().free_window(&one).unwrap();
}

#[test]
fn zero_based_window_starts_at_zero() {
    let known = Known::new(ALL);
    write_bytes(b"0123456789abcdef01234567", &[known.local(IOVA, 24, true).unwrap()]).unwrap();
    let window = window(&known, true);
    let bind = known.bind(&window, window.key(), READ | ZERO_BASED);
    memory().bind(&known.domain, 7, &bind).unwrap();
    let at = |address, length| memory().remote(&known.domain, 7, bind.rkey, address, length, READ);
    assert_eq!(bytes_of(at(0, 16).unwrap()), b"89abcdef01234567");
    assert_eq!(fault(at(1, 16)), Some(Fault::Bounds));
    assert_eq!(fault(at(IOVA + 8, 8)), Some(Fault::Bounds));
    memory().free_window(&window).unwrap();
}

#[test]
fn invalidation_waits_for_users_of_the_window() {
    let known = Known::new(ALL);
    let window = window(&known, true);
    let bind = known.bind(&window, window.key(), WRITE);
    memory().bind(&known.domain, 7, &bind).unwrap();
    let held = Barrier::new(2);
    thread::scope(|scope| {
        let (known, held, rkey) = (&known, &held, bind.rkey);
        scope.spawn(move || {
            let segment = memory().remote(&known.domain, 7, rkey, IOVA + 8, 8, WRITE).unwrap();
            held.wait();
            while remote(known, 7, rkey, IOVA + 8, WRITE).is_none() {
                thread::yield_now();
            }
            write_bytes(&[3; 8], &[segment]).unwrap();
        });
        held.wait();
        memory().invalidate(&known.domain, 7, rkey).unwrap();
        assert_eq!(bytes_of(known.local(IOVA + 8, 8, false).unwrap()), [3; 8]);
    });
    memory().free_window(&window).unwrap();
}

#[test]
fn regions_and_windows_change_under_accesses() {
    let known = Known::new(ALL);
    let window = window(&known, true);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let rkey = window.key();
    thread::scope(|scope| {
        let (known, is_over) = (&known, &is_over);
        for _ in 0..2 {
            scope.spawn(move || {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    match memory().remote(&known.domain, 7, rkey, IOVA + 8, 8, WRITE) {
                        Ok(segment) => write_bytes(&[5; 8], &[segment]).unwrap(),
                        Err(fault) => assert_eq!(fault, Fault::Key),
                    }
                }
            });
        }
        let bind = known.bind(&window, rkey, WRITE);
        for _ in 0..if cfg!(miri) { 20 } else { 2_000 } {
            memory().bind(&known.domain, 7, &bind).unwrap();
            assert_eq!(memory().deregister(&known.region), Err(Errno::BUSY));
            memory().invalidate(&known.domain, 7, rkey).unwrap();
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    memory().free_window(&window).unwrap();
    memory().deregister(&known.region).unwrap();
}
