//! Devices: listed together, each served by its own provider.

use std::ffi::CStr;
use std::mem;
use std::ptr::null_mut;
use std::sync::atomic::Ordering;
use std::thread;

use rdma_mummy_sys as ffi;
use rdma_mummy_sys::load::ibverbs::{Ibverbs, IbverbsTable};
use rdma_mummy_sys::load::provider::{Provider, ProviderId, register};
use sideway_tests::process::alone;

use crate::providers::tables::{BROKEN, NO_LIBRARY, calls, errno, forever, table, two};

/// The devices of the list, and the list.
fn devices() -> (Vec<*mut ffi::ibv_device>, *mut *mut ffi::ibv_device) {
    let mut count = -1;
    // SAFETY: the list holds the stated number of devices, and a null pointer.
    unsafe {
        let list = ffi::ibv_get_device_list(&mut count);
        assert!(!list.is_null());
        let devices = std::slice::from_raw_parts(list, count as usize).to_vec();
        assert!((*list.add(count as usize)).is_null());
        (devices, list)
    }
}

#[test]
fn each_verb_goes_to_the_objects_provider() {
    if !alone("providers::devices::each_verb_goes_to_the_objects_provider", &NO_LIBRARY) {
        return;
    }
    let [one, two] = two();
    let (devices, list) = devices();
    assert_eq!(devices.len(), 3, "one of provider 1 and two of provider 2");
    assert_eq!(calls(), [(1, "get_device_list"), (2, "get_device_list")]);

    // SAFETY: the devices are alive, as are the objects made from them.
    unsafe {
        let names: Vec<_> = devices.iter().map(|&device| CStr::from_ptr(ffi::ibv_get_device_name(device))).collect();
        assert_eq!(names, [c"soft-1", c"soft-2", c"soft-2"]);
        assert_eq!(
            devices.iter().map(|&device| ProviderId::of_device(device)).collect::<Vec<_>>(),
            [Some(one), Some(two), Some(two)]
        );
        calls();

        let contexts: Vec<_> = devices.iter().map(|&device| ffi::ibv_open_device(device)).collect();
        // Verbs on both devices are interleaved.
        let domains: Vec<_> = contexts.iter().map(|&context| ffi::ibv_alloc_pd(context)).collect();
        for (&context, vendor) in contexts.iter().zip([1, 2, 2]) {
            let mut attr: ffi::ibv_device_attr = mem::zeroed();
            assert_eq!(ffi::ibv_query_device(context, &mut attr), 0);
            assert_eq!(attr.vendor_id, vendor);
        }
        domains.iter().for_each(|&pd| assert_eq!(ffi::ibv_dealloc_pd(pd), 0));
        assert_eq!(
            calls(),
            [
                (1, "open_device"),
                (2, "open_device"),
                (2, "open_device"),
                (1, "alloc_pd"),
                (2, "alloc_pd"),
                (2, "alloc_pd"),
                (1, "query_device"),
                (2, "query_device"),
                (2, "query_device"),
                (1, "dealloc_pd"),
                (2, "dealloc_pd"),
                (2, "dealloc_pd"),
            ]
        );

        // A function that a provider lacks fails alone, and the system's library is not called for its objects.
        assert!(ffi::ibv_create_comp_channel(contexts[1]).is_null());
        assert_eq!(errno(), libc::EOPNOTSUPP);
        assert!(!ffi::mlx5dv::mlx5dv_is_supported(devices[0]));

        // An event is acknowledged by the provider of its object; a port event needs none.
        let mut cq: ffi::ibv_cq = mem::zeroed();
        cq.context = contexts[2];
        let mut event: ffi::ibv_async_event = mem::zeroed();
        event.element.cq = &mut cq;
        event.event_type = ffi::ibv_event_type::IBV_EVENT_CQ_ERR;
        ffi::ibv_ack_async_event(&mut event);
        event.element.port_num = 1;
        event.event_type = ffi::ibv_event_type::IBV_EVENT_PORT_ERR;
        ffi::ibv_ack_async_event(&mut event);
        assert_eq!(calls(), [(2, "ack_async_event")]);

        ffi::ibv_free_device_list(list);
        assert_eq!(calls(), [(1, "free_device_list"), (2, "free_device_list")]);
        // The list is freed; the contexts stay open.
        assert_eq!(ProviderId::of_context(contexts[1]), Some(two));
    }
}

#[test]
fn one_failed_library_does_not_hide_the_other() {
    if !alone("providers::devices::one_failed_library_does_not_hide_the_other", &NO_LIBRARY) {
        return;
    }
    two();
    BROKEN[1].store(true, Ordering::Relaxed);
    let (found, list) = devices();
    assert_eq!(found.len(), 2);
    calls();
    // SAFETY: the list is freed once.
    unsafe { ffi::ibv_free_device_list(list) };
    assert_eq!(calls(), [(2, "free_device_list")]);

    BROKEN[2].store(true, Ordering::Relaxed);
    let mut count = 9;
    // SAFETY: the count can be written to.
    unsafe {
        assert!(ffi::ibv_get_device_list(&mut count).is_null());
        assert_eq!((count, errno()), (0, libc::EOPNOTSUPP), "the library of the system is the first that failed");
        // The count is optional.
        BROKEN[1].store(false, Ordering::Relaxed);
        let list = ffi::ibv_get_device_list(null_mut());
        assert!(!list.is_null());
        ffi::ibv_free_device_list(list);
    }
}

#[test]
fn devices_of_the_system_come_first() {
    if !alone("providers::devices::devices_of_the_system_come_first", &NO_LIBRARY) {
        return;
    }
    // Provider 2 stands in for the library. SAFETY: the functions do what the test needs of their names.
    let system = unsafe { Ibverbs::from_table(table::<2>()) }.install().unwrap();
    assert!(system.ibv_alloc_pd().is_ok());
    // If it is the only provider, its own list is returned.
    let (found, list) = devices();
    assert_eq!(found.len(), 2);
    // SAFETY: the list is freed once.
    unsafe { ffi::ibv_free_device_list(list) };
    assert_eq!(calls(), [(2, "get_device_list"), (2, "free_device_list")]);

    // SAFETY: as above.
    let one = unsafe { register(Provider::new("one", table::<1>())) }.unwrap();
    let (found, list) = devices();
    // SAFETY: the devices are alive, and the list is freed once.
    unsafe {
        let owners: Vec<_> = found.iter().map(|&device| ProviderId::of_device(device)).collect();
        assert_eq!(owners, [None, None, Some(one)]);
        calls();
        let context = ffi::ibv_open_device(found[1]);
        assert_eq!(ffi::ibv_dealloc_pd(ffi::ibv_alloc_pd(context)), 0);
        ffi::ibv_open_device(found[2]);
        assert_eq!(calls(), [(2, "open_device"), (2, "alloc_pd"), (2, "dealloc_pd"), (1, "open_device")]);
        // An unknown mark is not dereferenced: the device is the system's.
        let stray: *mut ffi::ibv_device = forever();
        (&raw mut (*stray)._ops._dummy1).cast::<usize>().write(0xdead_beef);
        assert_eq!(ProviderId::of_device(stray), None);
        ffi::ibv_free_device_list(list);
    }
}

#[test]
fn provider_name_is_unique() {
    if !alone("providers::devices::provider_name_is_unique", &NO_LIBRARY) {
        return;
    }
    // SAFETY: the tables are empty.
    let register = |name: &str| unsafe { register(Provider::new(name, IbverbsTable::default())) };
    let outcomes: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|index| scope.spawn(move || register(["a", "b"][index % 2]))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 2);
    let error = register("a").unwrap_err();
    assert_eq!(error.holder, ProviderId::by_name("a"));
    assert!(error.to_string().contains("`a`"), "{error}");
    assert_eq!(ProviderId::by_name("b").unwrap().name(), "b");
    assert!(ProviderId::by_name("c").is_none());
    assert!(register("system").unwrap_err().holder.is_none());
}

#[test]
fn buffer_is_freed_by_its_provider() {
    if !alone("providers::devices::buffer_is_freed_by_its_provider", &NO_LIBRARY) {
        return;
    }
    two();
    let (found, list) = devices();
    // SAFETY: the objects are alive until they are freed.
    unsafe {
        let contexts = [found[0], found[1]].map(|device| ffi::ibv_open_device(device));
        let [one, two] = contexts.map(|context| ffi::ibv_alloc_pd(context));
        calls();
        let (mut of_one, mut of_two) = (null_mut(), null_mut());
        assert!(!ffi::ibv_alloc_buf(one, 8, &mut of_one).is_null());
        assert!(!ffi::ibv_alloc_buf(two, 8, &mut of_two).is_null());
        assert_eq!(ffi::ibv_export_buf_dmabuf_fd(of_two), 2);
        ffi::ibv_free_buf(of_one);
        ffi::ibv_free_buf(of_two);
        let made = [(1, "alloc_buf"), (2, "alloc_buf"), (2, "export_buf_dmabuf_fd")];
        assert_eq!(calls(), [&made[..], &[(1, "free_buf"), (2, "free_buf")]].concat());
        // Without a provider or a library, the call fails like other functions that return a descriptor.
        assert_eq!((ffi::ibv_export_buf_dmabuf_fd(null_mut()), errno()), (-1, libc::EINVAL));
        // Each function that is in no table fails separately.
        assert!(ffi::ibv_reg_mr_ex(one, null_mut()).is_null());
        assert_eq!(errno(), libc::EOPNOTSUPP);
        ffi::ibv_free_device_list(list);
    }
}
