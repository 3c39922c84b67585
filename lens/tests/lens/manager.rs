//! Connections by address: what the trace has of them, and their faults.

use std::time::Duration;

use rdma_lens::{Format, What};
use rdma_mummy_sys as ffi;
use sideway::ibverbs::queue_pair::QueuePair;
use sideway::rdmacm::Connector;
use sideway::rdmacm::communication_manager::EventType;
use sideway_tests::connections::{address, channel, connect, expect};

use crate::support::{Session, calls};

#[test]
fn queue_pairs_of_connections_are_traced() {
    let session = Session::new(Format::Json, |builder| builder);
    let channel = channel();
    let (client, server) = connect(&channel);
    let numbers = [client.qp.qp_number(), server.qp.qp_number()];
    drop((client, server, channel));
    let records = session.records();
    for number in numbers {
        let made = records.iter().any(|record| matches!(&record.what, What::Send(request) if request.qp == number));
        assert!(made || calls(&records, "rdma_create_qp").len() + calls(&records, "rdma_create_qp_ex").len() >= 2);
    }
    let events: Vec<&str> = calls(&records, "rdma_get_cm_event")
        .into_iter()
        .filter_map(|call| Some(call.0.iter().find(|(name, _)| name == "event")?.1.as_str()))
        .collect();
    for event in ["ADDR_RESOLVED", "ROUTE_RESOLVED", "CONNECT_REQUEST", "ESTABLISHED"] {
        assert!(events.contains(&event), "{event}: {events:?}");
    }
}

/// A program may destroy the queue pair of an identifier with `ibv_destroy_qp`, which leaves the pointer in the
/// identifier, and then get events of it.
#[test]
fn events_after_the_queue_pair_was_destroyed_do_not_use_it() {
    let session = Session::new(Format::Json, |builder| builder);
    let channel = channel();
    let (client, server) = connect(&channel);
    // SAFETY: the queue pair is not used again: neither it nor its identifier is dropped.
    unsafe {
        let id = server.id.cm_id().as_ptr();
        let qp = (*id).qp;
        assert_eq!(ffi::ibv_destroy_qp(qp), 0);
        // What a freed object may contain.
        (*id).qp = std::ptr::without_provenance_mut(8);
        client.id.disconnect().unwrap();
        let event = expect(&channel, EventType::Disconnected);
        drop(event);
        (*id).qp = std::ptr::null_mut();
    }
    std::mem::forget(server);
    drop(client);
    let records = session.records();
    assert!(!calls(&records, "rdma_get_cm_event").is_empty());
}

/// The device reports at once that the time has passed. The connector asks again, but not without a pause.
#[test]
fn early_time_outs_end_at_the_deadline() {
    let session = Session::with_faults("each event ADDR_RESOLVED: report ADDR_ERROR");
    let _name = sideway_tests::device::name();
    let error = Connector::new().setup_timeout(Duration::from_millis(200)).resolve((address(), 7471)).unwrap_err();
    assert!(error.is_timed_out(), "{error}");
    let records = session.records();
    let events = calls(&records, "rdma_get_cm_event").into_iter().flat_map(|call| call.0);
    let count = events.filter(|(_, value)| value == "ADDR_ERROR").count();
    assert!((1..=2).contains(&count), "{count} attempts");
}
