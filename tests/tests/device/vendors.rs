//! The vendors' own libraries, called for a device of another vendor.

use rdma_mummy_sys::load::{efa, mlx5};
use sideway::error::VerbError;
use sideway::ibverbs::device::{DeviceInfo, DeviceList};
use sideway::ibverbs::queue_pair::SendOperationFlags;
use sideway::mlx5::is_mlx5;
use sideway_tests::device;

/// `EOPNOTSUPP` from the verb, with the reason: the device if the library is installed, else the library.
#[track_caller]
fn refused(error: &VerbError, verb: &str, reason: &str) {
    let text = error.to_string();
    assert!(text.starts_with(&format!("{verb}: EOPNOTSUPP (Operation not supported): ")), "{text}");
    assert!(text.contains(reason), "{text}");
}

#[test]
fn libmlx5_refuses_another_vendors_device() {
    let context = device::open();
    let reason = match mlx5::library() {
        Ok(_) => format!("{} is not an mlx5 device", context.name()),
        Err(missing) => missing.to_string(),
    };
    for device in &DeviceList::new().unwrap() {
        assert!(!is_mlx5(&device), "{}", device.name());
    }
    assert!(!is_mlx5(&*context));
    refused(&context.query_mlx5_device().unwrap_err(), "mlx5dv_query_device", &reason);
    refused(&context.mlx5_clock_info().unwrap_err(), "mlx5dv_get_clock_info", &reason);
    let pd = context.alloc_pd().unwrap();
    refused(&pd.create_dci_builder().unwrap_err(), "mlx5dv_create_qp", &reason);
    refused(&pd.create_dct_builder().unwrap_err(), "mlx5dv_create_qp", &reason);
}

#[test]
fn libefa_refuses_another_vendors_device() {
    let context = device::open();
    let reason = match efa::library() {
        Ok(_) => format!("{} is not an EFA device", context.name()),
        Err(missing) => missing.to_string(),
    };
    refused(&context.query_efa_device().unwrap_err(), "efadv_query_device", &reason);
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq_builder().build().unwrap();
    let mut builder = pd.create_srd_qp_builder();
    builder.setup_send_cq(&cq).setup_recv_cq(&cq);
    refused(&builder.build_srd().unwrap_err(), "efadv_query_device", &reason);
    if device::has_extended_queue_pairs() {
        builder.setup_send_ops_flags(SendOperationFlags::Send);
        refused(&builder.build_srd().unwrap_err(), "efadv_create_qp_ex", &reason);
    }
    let queue = context.create_cq_builder().build_efa_with_source_gid();
    refused(&queue.unwrap_err(), "efadv_create_cq", &reason);
}
