//! The device contexts that the library lends.

use std::sync::Arc;

use sideway::rdmacm::communication_manager::{PortSpace, devices};
use sideway_tests::recording::{Failure, Kind, Recording, channel};

use super::pair;

#[test]
fn identifiers_of_a_device_share_a_context_and_what_is_made_in_it_outlives_them() {
    let recording = Recording::new();
    let channel = channel();
    let (_listener, one) = pair(&channel, PortSpace::Tcp);
    let (_another, two) = pair(&channel, PortSpace::Tcp);
    let context = one.get_device_context().unwrap();
    assert!(Arc::ptr_eq(&context, &two.get_device_context().unwrap()));
    let pd = context.alloc_pd().unwrap();
    drop((one, two, _listener, _another, context));
    drop(channel);
    // The device goes, and the library closes what nobody has.
    recording.unplug();
    let cq = pd.device_context().create_cq_builder().build().unwrap();
    drop((cq, pd));
    assert_eq!(recording.live(), []);
}

#[test]
fn a_context_is_given_back_once_nobody_holds_it() {
    let recording = Recording::new();
    let channel = channel();
    let (_listener, id) = pair(&channel, PortSpace::Tcp);
    let context = id.get_device_context().unwrap();
    let again = id.get_device_context().unwrap();
    recording.calls();
    drop(context);
    assert_eq!(recording.verbs(), [""; 0]);
    drop(again);
    assert_eq!(recording.verbs(), ["rdma_free_devices"]);
    // Not cached: the next is asked for anew.
    let context = id.get_device_context().unwrap();
    assert_eq!(recording.verbs(), ["rdma_get_devices"]);
    Arc::into_inner(context).unwrap().close().unwrap();
    assert_eq!(recording.verbs(), ["rdma_free_devices"]);
}

#[test]
fn where_the_library_has_no_list_the_identifier_keeps_its_device_open() {
    let recording = Recording::new();
    let channel = channel();
    let (_listener, id) = pair(&channel, PortSpace::Tcp);
    recording.fail("rdma_get_devices", 0, Failure::documented(libc::ENODEV));
    let pd = id.get_device_context().unwrap().alloc_pd().unwrap();
    drop((id, _listener));
    assert!(recording.live().contains(&Kind::Identifier));
    recording.unplug();
    drop(pd);
    drop(channel);
    assert_eq!(recording.live(), []);
}

#[test]
fn the_devices_of_the_connection_manager_are_listed_and_given_back() {
    let recording = Recording::new();
    let list = devices().unwrap();
    assert_eq!(list.len(), 1);
    let pd = list[0].alloc_pd().unwrap();
    drop(list);
    assert!(!recording.verbs().contains(&"rdma_free_devices"));
    drop(pd);
    assert!(recording.verbs().contains(&"rdma_free_devices"));
    recording.fail("rdma_get_devices", 0, Failure::documented(libc::ENOMEM));
    let error = devices().unwrap_err();
    assert_eq!(error.verb(), "rdma_get_devices");
}
