//! The device contexts that the library lends. softrnic has one for the process, which another test may have leaked, so
//! each test has a process of its own.

use std::sync::Arc;

use sideway::rdmacm::communication_manager::{PortSpace, devices};
use sideway_tests::process::alone;
use sideway_tests::recording::{Failure, Kind};
use sideway_tests::shim::{Shim, channel};

use crate::pair;

#[test]
fn identifiers_of_a_device_share_a_context_whose_objects_outlive_them() {
    if !alone("contexts::identifiers_of_a_device_share_a_context_whose_objects_outlive_them", &[]) {
        return;
    }
    let shim = Shim::new();
    let channel = channel();
    let (_listener, one) = pair(&channel, PortSpace::Tcp);
    let (_another, two) = pair(&channel, PortSpace::Tcp);
    let context = one.get_device_context().unwrap();
    assert!(Arc::ptr_eq(&context, &two.get_device_context().unwrap()));
    let pd = context.alloc_pd().unwrap();
    drop((one, two, _listener, _another, context));
    drop(channel);
    let cq = pd.device_context().create_cq_builder().build().unwrap();
    drop((cq, pd));
    assert_eq!(shim.live(), []);
}

#[test]
fn unused_context_is_released() {
    if !alone("contexts::unused_context_is_released", &[]) {
        return;
    }
    let shim = Shim::new();
    let channel = channel();
    let (_listener, id) = pair(&channel, PortSpace::Tcp);
    let context = id.get_device_context().unwrap();
    let again = id.get_device_context().unwrap();
    shim.calls();
    drop(context);
    assert_eq!(shim.verbs(), [""; 0]);
    drop(again);
    assert_eq!(shim.verbs(), ["rdma_free_devices"]);
    // The context is not cached: the next one is requested again.
    let context = id.get_device_context().unwrap();
    assert_eq!(shim.verbs(), ["rdma_get_devices"]);
    Arc::into_inner(context).unwrap().close().unwrap();
    assert_eq!(shim.verbs(), ["rdma_free_devices"]);
}

#[test]
fn identifier_keeps_its_device_open_without_a_device_list() {
    if !alone("contexts::identifier_keeps_its_device_open_without_a_device_list", &[]) {
        return;
    }
    let shim = Shim::new();
    let channel = channel();
    let (_listener, id) = pair(&channel, PortSpace::Tcp);
    shim.fail("rdma_get_devices", 0, Failure::documented(libc::ENODEV));
    let pd = id.get_device_context().unwrap().alloc_pd().unwrap();
    drop((id, _listener));
    assert!(shim.live().contains(&Kind::Identifier));
    drop(pd);
    drop(channel);
    assert_eq!(shim.live(), []);
}

#[test]
fn cm_devices_are_listed_and_freed() {
    if !alone("contexts::cm_devices_are_listed_and_freed", &[]) {
        return;
    }
    let shim = Shim::new();
    let list = devices().unwrap();
    assert_eq!(list.len(), 1);
    let pd = list[0].alloc_pd().unwrap();
    drop(list);
    assert!(!shim.verbs().contains(&"rdma_free_devices"));
    drop(pd);
    assert!(shim.verbs().contains(&"rdma_free_devices"));
    shim.fail("rdma_get_devices", 0, Failure::documented(libc::ENOMEM));
    let error = devices().unwrap_err();
    assert_eq!(error.verb(), "rdma_get_devices");
}
