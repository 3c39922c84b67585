//! A device that does nothing: a signaled request has completed when it is posted, and no memory is accessed.
//!
//! The device adds up the fields that it receives ([`take_checksum`]), so that two loops can be compared. All
//! instructions outside [`data_path`] are the caller's cost.

pub mod data_path;
mod objects;

use std::sync::Once;

use anyhow::Result;
use rdma_mummy_sys::load::ibverbs::IbverbsTable;
use rdma_mummy_sys::load::provider::{Provider, register as register_provider};

pub use self::data_path::{fill, take_checksum};

/// The name of the only device.
pub const NAME: &str = "empty_0";

/// Registers the device in this process.
///
/// # Errors
///
/// Another provider has the device's name.
pub fn register() -> Result<()> {
    static ONCE: Once = Once::new();
    let mut result = Ok(());
    ONCE.call_once(|| {
        // SAFETY: the functions create, count and free objects as the manual pages describe; the absent ones fail.
        result = unsafe { register_provider(Provider::new("empty", table())) }.map(|_| ());
    });
    Ok(result?)
}

/// The functions of the device.
pub fn table() -> IbverbsTable {
    IbverbsTable {
        ibv_get_device_list: Some(objects::get_device_list),
        ibv_free_device_list: Some(objects::free_device_list),
        ibv_get_device_name: Some(objects::get_device_name),
        ibv_get_device_guid: Some(objects::get_device_guid),
        ibv_open_device: Some(objects::open_device),
        ibv_close_device: Some(objects::close_device),
        ibv_query_device: Some(objects::query_device),
        ibv_query_port: Some(objects::query_port),
        ibv_query_gid: Some(objects::query_gid),
        _ibv_query_gid_table: Some(objects::query_gid_table),
        ibv_alloc_pd: Some(objects::alloc_pd),
        ibv_dealloc_pd: Some(objects::dealloc_pd),
        ibv_reg_mr: Some(objects::reg_mr),
        ibv_reg_mr_iova2: Some(objects::reg_mr_iova2),
        ibv_dereg_mr: Some(objects::dereg_mr),
        ibv_create_comp_channel: Some(objects::create_comp_channel),
        ibv_destroy_comp_channel: Some(objects::destroy_comp_channel),
        ibv_create_cq: Some(objects::create_cq),
        ibv_destroy_cq: Some(objects::destroy_cq),
        ibv_create_qp: Some(objects::create_qp),
        ibv_qp_to_qp_ex: Some(objects::qp_to_qp_ex),
        ibv_modify_qp: Some(objects::modify_qp),
        ibv_destroy_qp: Some(objects::destroy_qp),
        ..Default::default()
    }
}
