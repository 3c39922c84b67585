//! A device is removed, and another one arrives.

use std::io;
use std::ptr;

use rdma_mummy_sys::*;
use softrnic::control::{Device, Error};

use crate::child::is_alone;
use crate::common::{Setup, close, name_of, open, opened, pair};
use crate::{FLUSHED, SEND, command, event};

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn is_listed() -> bool {
    let mut count = 0;
    // SAFETY: the list has `count` devices, and is freed after its last use.
    unsafe {
        let list = ibv_get_device_list(&raw mut count);
        let found = (0..count as usize).any(|place| name_of(*list.add(place)) == c"soft0");
        ibv_free_device_list(list);
        found
    }
}

#[test]
fn objects_of_a_removed_device_can_only_be_destroyed() {
    if !is_alone("removal::objects_of_a_removed_device_can_only_be_destroyed") {
        return;
    }
    let context = open(c"soft0");
    let sides = pair(context, Setup { min_rnr_timer: 31, ..Setup::default() });
    // The first request waits for a receive, and the second one for the first.
    sides[0].send(SEND, 1, &mut [sides[0].piece(0, 8)], |_| {});
    sides[0].send(SEND, 2, &mut [sides[0].piece(0, 8)], |_| {});
    sides[0].receive(3, &mut [sides[0].piece(0, 8)]);
    let mut count = 0;
    // SAFETY: the list is freed below.
    let list = unsafe { ibv_get_device_list(&raw mut count) };

    command("device remove on soft0");
    assert_eq!(event(context), ibv_event_type::IBV_EVENT_DEVICE_FATAL);
    let mut flushed: Vec<_> = (0..3).map(|_| sides[0].sleep()).map(|wc| (wc.wr_id, wc.status)).collect();
    flushed.sort_unstable_by_key(|wc| wc.0);
    assert_eq!(flushed, [1, 2, 3].map(|id| (id, FLUSHED)));
    assert!(!is_listed());
    // SAFETY: all objects are alive; the list was returned before the removal, and is freed once.
    unsafe {
        assert!(ibv_alloc_pd(context).is_null() && errno() == libc::EIO);
        assert!(ibv_create_cq(context, 1, ptr::null_mut(), ptr::null_mut(), 0).is_null() && errno() == libc::EIO);
        let mut attr: ibv_qp_attr = std::mem::zeroed();
        assert_eq!(ibv_modify_qp(sides[0].qp, &raw mut attr, 1), libc::EIO);
        let mut port: ibv_port_attr = std::mem::zeroed();
        assert_eq!(ibv_query_port(context, 1, &raw mut port), libc::EIO);
        let device = (*context).device;
        assert!(ibv_open_device(device).is_null() && errno() == libc::ENODEV);
        ibv_free_device_list(list);
    }
    let soft0 = Device::named("soft0").unwrap();
    assert_eq!((soft0.remove(), soft0.port_up()), (Err(removed()), Err(removed())));
    close(sides);
}

fn removed() -> Error {
    Error::Removed { name: "soft0".to_owned() }
}

#[test]
fn arrival_adds_a_fresh_device() {
    if !is_alone("removal::arrival_adds_a_fresh_device") {
        return;
    }
    let old = open(c"soft0");
    let soft0 = Device::named("soft0").unwrap();
    assert_eq!(soft0.arrive(), Err(Error::Present { name: "soft0".to_owned() }));
    command("port down");
    command("device remove");
    command("device arrive");
    assert!(is_listed());
    // SAFETY: the context is open.
    assert!(unsafe { ibv_alloc_pd(old) }.is_null() && errno() == libc::EIO);
    let sides = pair(opened(c"soft0"), Setup::default());
    sides[1].receive(1, &mut [sides[1].piece(0, 8)]);
    sides[0].send(SEND, 2, &mut [sides[0].piece(0, 8)], |_| {});
    sides[0].done(2);
    sides[1].done(1);
    close(sides);
    // SAFETY: the context has no objects.
    assert_eq!(unsafe { ibv_close_device(old) }, 0);
}
