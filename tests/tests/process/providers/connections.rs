//! Connections: the provider is chosen when a channel is created, and does not change.

use std::ptr::null_mut;

use libc::{c_char, c_int, c_void, sockaddr};
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::load::provider::ProviderId;
use rdma_mummy_sys::load::rdmacm::{Choice, RdmacmTable, choose};
use sideway_tests::process::alone;

use crate::providers::tables::{NO_LIBRARY, called, calls, errno, forever, two};

/// The connection manager of provider `N`.
mod verbs {
    use super::*;

    pub(super) unsafe extern "C" fn create_event_channel<const N: usize>() -> *mut ffi::rdma_event_channel {
        called(N, "create_event_channel");
        forever()
    }

    pub(super) unsafe extern "C" fn destroy_event_channel<const N: usize>(_channel: *mut ffi::rdma_event_channel) {
        called(N, "destroy_event_channel");
    }

    pub(super) unsafe extern "C" fn create_id<const N: usize>(
        channel: *mut ffi::rdma_event_channel,
        id: *mut *mut ffi::rdma_cm_id,
        _context: *mut c_void,
        _ps: ffi::rdma_port_space,
    ) -> c_int {
        called(N, "create_id");
        let made = forever::<ffi::rdma_cm_id>();
        // SAFETY: the identifier was made just now, and `id` can be written to by contract.
        unsafe {
            (*made).channel = channel;
            *id = made;
        }
        0
    }

    pub(super) unsafe extern "C" fn destroy_id<const N: usize>(_id: *mut ffi::rdma_cm_id) -> c_int {
        called(N, "destroy_id");
        0
    }

    /// Binds the identifier to a new device, which was in no list.
    pub(super) unsafe extern "C" fn bind_addr<const N: usize>(id: *mut ffi::rdma_cm_id, _addr: *mut sockaddr) -> c_int {
        called(N, "bind_addr");
        // SAFETY: the identifier is alive, and the context was made just now.
        unsafe {
            (*id).verbs = forever();
            (*(*id).verbs).device = forever();
        }
        0
    }

    pub(super) unsafe extern "C" fn listen<const N: usize>(_id: *mut ffi::rdma_cm_id, _backlog: c_int) -> c_int {
        called(N, "listen");
        0
    }

    pub(super) unsafe extern "C" fn migrate_id<const N: usize>(
        id: *mut ffi::rdma_cm_id,
        channel: *mut ffi::rdma_event_channel,
    ) -> c_int {
        called(N, "migrate_id");
        // SAFETY: the identifier is alive.
        unsafe { (*id).channel = channel };
        0
    }

    /// A request to connect, with a new identifier.
    pub(super) unsafe extern "C" fn get_cm_event<const N: usize>(
        channel: *mut ffi::rdma_event_channel,
        event: *mut *mut ffi::rdma_cm_event,
    ) -> c_int {
        called(N, "get_cm_event");
        let made = forever::<ffi::rdma_cm_event>();
        let id = forever::<ffi::rdma_cm_id>();
        // SAFETY: all were made just now, and `event` can be written to by contract.
        unsafe {
            (*id).channel = channel;
            (*made).id = id;
            (*made).event = ffi::rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST;
            *event = made;
        }
        0
    }

    pub(super) unsafe extern "C" fn getaddrinfo<const N: usize>(
        _node: *const c_char,
        _service: *const c_char,
        _hints: *const ffi::rdma_addrinfo,
        res: *mut *mut ffi::rdma_addrinfo,
    ) -> c_int {
        called(N, "getaddrinfo");
        // SAFETY: `res` is writable by contract.
        unsafe { *res = forever() };
        0
    }

    pub(super) unsafe extern "C" fn freeaddrinfo<const N: usize>(_res: *mut ffi::rdma_addrinfo) {
        called(N, "freeaddrinfo");
    }

    pub(super) unsafe extern "C" fn create_ep<const N: usize>(
        id: *mut *mut ffi::rdma_cm_id,
        _res: *mut ffi::rdma_addrinfo,
        _pd: *mut ffi::ibv_pd,
        _attr: *mut ffi::ibv_qp_init_attr,
    ) -> c_int {
        called(N, "create_ep");
        // SAFETY: `id` is writable by contract.
        unsafe { *id = forever() };
        0
    }

    pub(super) unsafe extern "C" fn destroy_ep<const N: usize>(_id: *mut ffi::rdma_cm_id) {
        called(N, "destroy_ep");
    }

    pub(super) unsafe extern "C" fn get_devices<const N: usize>(count: *mut c_int) -> *mut *mut ffi::ibv_context {
        called(N, "get_devices");
        let context = forever::<ffi::ibv_context>();
        // SAFETY: the context was made just now, and the count can be written to by contract.
        unsafe {
            (*context).device = forever();
            *count = 1;
        }
        Box::leak(Box::new([context, null_mut()])).as_mut_ptr()
    }

    pub(super) unsafe extern "C" fn free_devices<const N: usize>(list: *mut *mut ffi::ibv_context) {
        called(N, "free_devices");
        // SAFETY: the list is one of the function above.
        drop(unsafe { Box::from_raw(list.cast::<[*mut ffi::ibv_context; 2]>()) });
    }

    pub(super) unsafe extern "C" fn ack_cm_event<const N: usize>(_event: *mut ffi::rdma_cm_event) -> c_int {
        called(N, "ack_cm_event");
        0
    }
}

pub(crate) fn connection_table<const N: usize>() -> RdmacmTable {
    RdmacmTable {
        rdma_create_event_channel: Some(verbs::create_event_channel::<N>),
        rdma_destroy_event_channel: Some(verbs::destroy_event_channel::<N>),
        rdma_create_id: Some(verbs::create_id::<N>),
        rdma_destroy_id: Some(verbs::destroy_id::<N>),
        rdma_bind_addr: Some(verbs::bind_addr::<N>),
        rdma_listen: Some(verbs::listen::<N>),
        rdma_migrate_id: Some(verbs::migrate_id::<N>),
        rdma_get_cm_event: Some(verbs::get_cm_event::<N>),
        rdma_getaddrinfo: Some(verbs::getaddrinfo::<N>),
        rdma_freeaddrinfo: Some(verbs::freeaddrinfo::<N>),
        rdma_create_ep: Some(verbs::create_ep::<N>),
        rdma_destroy_ep: Some(verbs::destroy_ep::<N>),
        rdma_get_devices: Some(verbs::get_devices::<N>),
        rdma_free_devices: Some(verbs::free_devices::<N>),
        rdma_ack_cm_event: Some(verbs::ack_cm_event::<N>),
        ..Default::default()
    }
}

#[test]
fn connections_stay_with_their_provider() {
    if !alone("providers::connections::connections_stay_with_their_provider", &NO_LIBRARY) {
        return;
    }
    let [one, two] = two();
    // SAFETY: each object is alive until it is destroyed, and used as the functions above require.
    unsafe {
        // Without a library of the system, the first provider serves; a choice affects later objects.
        let first = ffi::rdma_create_event_channel();
        assert_eq!(choose(Choice::Provider(two)), Choice::Automatic);
        let second = ffi::rdma_create_event_channel();
        assert_eq!(calls(), [(1, "create_event_channel"), (2, "create_event_channel")]);

        let create = |channel| {
            let mut id = null_mut();
            assert_eq!(ffi::rdma_create_id(channel, &mut id, null_mut(), ffi::rdma_port_space::RDMA_PS_TCP), 0);
            id
        };
        let (of_first, of_second, without) = (create(first), create(second), create(null_mut()));
        assert_eq!(ffi::rdma_listen(of_first, 1), 0);
        assert_eq!(ffi::rdma_listen(of_second, 1), 0);
        assert_eq!(ffi::rdma_listen(without, 1), 0);
        let made = [(1, "create_id"), (2, "create_id"), (2, "create_id"), (1, "listen"), (2, "listen"), (2, "listen")];
        assert_eq!(calls(), made);

        // A bound identifier has a device that was in no list. Verbs on this device go to the provider.
        assert_eq!(ffi::rdma_bind_addr(of_first, null_mut()), 0);
        assert_eq!(ProviderId::of_context((*of_first).verbs), Some(one));
        ffi::ibv_alloc_pd((*of_first).verbs);
        assert_eq!(calls(), [(1, "bind_addr"), (1, "alloc_pd")]);

        // A request has a new identifier, which may be destroyed before the event is acknowledged.
        let mut event = null_mut();
        assert_eq!(ffi::rdma_get_cm_event(second, &mut event), 0);
        assert_eq!(ffi::rdma_destroy_id((*event).id), 0);
        assert_eq!(ffi::rdma_ack_cm_event(event), 0);
        assert_eq!(calls(), [(2, "get_cm_event"), (2, "destroy_id"), (2, "ack_cm_event")]);

        // An identifier cannot migrate to the channel of another provider.
        assert_eq!(ffi::rdma_migrate_id(of_first, second), -1);
        assert_eq!(errno(), libc::EINVAL);
        assert_eq!(ffi::rdma_migrate_id(without, second), 0);
        assert_eq!(calls(), [(2, "migrate_id")]);

        for id in [of_first, of_second, without] {
            assert_eq!(ffi::rdma_destroy_id(id), 0);
        }
        ffi::rdma_destroy_event_channel(first);
        ffi::rdma_destroy_event_channel(second);
        assert_eq!(
            calls(),
            [
                (1, "destroy_id"),
                (2, "destroy_id"),
                (2, "destroy_id"),
                (1, "destroy_event_channel"),
                (2, "destroy_event_channel"),
            ]
        );

        // Destroyed objects are removed from the map, because an object of the system may later have the same address.
        assert_eq!(ffi::rdma_listen(of_second, 1), -1);
        assert_eq!((errno(), calls().len()), (libc::EOPNOTSUPP, 0));

        choose(Choice::System);
        assert!(ffi::rdma_create_event_channel().is_null());
        assert_eq!(errno(), libc::EOPNOTSUPP);
    }
}

#[test]
fn environment_selects_the_connection_provider() {
    let [a, b, c] = NO_LIBRARY;
    if !alone(
        "providers::connections::environment_selects_the_connection_provider",
        &[a, b, c, ("RDMA_MUMMY_RDMACM", "two")],
    ) {
        return;
    }
    // SAFETY: the function has no preconditions.
    unsafe {
        assert!(ffi::rdma_create_event_channel().is_null());
        assert_eq!(errno(), libc::ENODEV, "no provider has that name yet");
        two();
        assert!(!ffi::rdma_create_event_channel().is_null());
    }
    assert_eq!(calls(), [(2, "create_event_channel")]);
}

#[test]
fn address_lists_and_devices_are_freed_by_their_provider() {
    if !alone("providers::connections::address_lists_and_devices_are_freed_by_their_provider", &NO_LIBRARY) {
        return;
    }
    let [one, two] = two();
    // SAFETY: each object is alive until it is freed, and used as the functions above require.
    unsafe {
        let mut of_one = null_mut();
        assert_eq!(ffi::rdma_getaddrinfo(null_mut(), null_mut(), null_mut(), &mut of_one), 0);
        choose(Choice::Provider(two));
        let mut of_two = null_mut();
        assert_eq!(ffi::rdma_getaddrinfo(null_mut(), null_mut(), null_mut(), &mut of_two), 0);
        // An endpoint has the provider of its addresses.
        let mut id = null_mut();
        assert_eq!(ffi::rdma_create_ep(&mut id, of_one, null_mut(), null_mut()), 0);
        ffi::rdma_destroy_ep(id);
        // A list that the program has filled in itself goes to the provider of new connections.
        assert_eq!(ffi::rdma_create_ep(&mut id, forever(), null_mut(), null_mut()), 0);
        ffi::rdma_destroy_ep(id);
        ffi::rdma_freeaddrinfo(of_one);
        ffi::rdma_freeaddrinfo(of_two);
        assert_eq!(
            calls(),
            [
                (1, "getaddrinfo"),
                (2, "getaddrinfo"),
                (1, "create_ep"),
                (1, "destroy_ep"),
                (2, "create_ep"),
                (2, "destroy_ep"),
                (1, "freeaddrinfo"),
                (2, "freeaddrinfo"),
            ]
        );

        let mut count = 0;
        let list = ffi::rdma_get_devices(&mut count);
        assert_eq!((count, (*list.add(2)).is_null()), (2, true));
        assert_eq!([0, 1].map(|index| ProviderId::of_context(*list.add(index))), [Some(one), Some(two)]);
        ffi::rdma_free_devices(list);
        assert_eq!(calls(), [(1, "get_devices"), (2, "get_devices"), (1, "free_devices"), (2, "free_devices")]);
    }
}
