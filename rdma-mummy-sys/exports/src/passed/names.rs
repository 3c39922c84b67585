//! The names, and the fallback of each if the system's library is missing.

use core::ffi::CStr;

/// The fallback of a call without a target.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Otherwise {
    /// Returns `EOPNOTSUPP`; also for functions without a return value.
    Refuse,
    /// Returns -1, and sets errno.
    MinusOne,
    /// Returns null, and sets errno.
    #[cfg(feature = "drivers")]
    Null,
    /// Calls `poll`, because descriptors that are not rsockets are ordinary ones.
    Poll,
    /// Calls `select`.
    Select,
}

/// A name and its fallback.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: &'static CStr,
    pub(crate) otherwise: Otherwise,
}

/// The number of names.
pub(crate) const COUNT: usize = PUBLIC.len() + DRIVERS.len();

/// Returns the entry at an index.
pub(crate) fn at(index: usize) -> Option<&'static Entry> {
    PUBLIC.iter().chain(DRIVERS).nth(index)
}

/// Declares a list of names, the first of which has the index `$first`.
macro_rules! names {
    ($list:ident from $first:expr; $($otherwise:ident $name:literal;)*) => {
        const $list: &[Entry] = &[$(Entry {
            // A null-terminated literal.
            name: match CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name has a zero byte"),
            },
            otherwise: Otherwise::$otherwise,
        }),*];

        names!(@entries $first; $($name)*);
    };
    (@entries $index:expr; $name:literal $($rest:literal)*) => {
        super::jump::entry!($name, $index);
        names!(@entries $index + 1; $($rest)*);
    };
    (@entries $index:expr;) => {};
}

// From librdmacm's <rdma/rsocket.h>, and four that older libibverbs headers declare.
names! { PUBLIC from 0;
    MinusOne "raccept";
    MinusOne "rbind";
    MinusOne "rclose";
    MinusOne "rconnect";
    MinusOne "rfcntl";
    MinusOne "rgetpeername";
    MinusOne "rgetsockname";
    MinusOne "rgetsockopt";
    MinusOne "repoll_create";
    MinusOne "repoll_ctl";
    MinusOne "repoll_wait";
    MinusOne "riomap";
    MinusOne "riounmap";
    MinusOne "riowrite";
    MinusOne "rlisten";
    Poll "rpoll";
    MinusOne "rread";
    MinusOne "rreadv";
    MinusOne "rrecv";
    MinusOne "rrecvfrom";
    MinusOne "rrecvmsg";
    Select "rselect";
    MinusOne "rsend";
    MinusOne "rsendmsg";
    MinusOne "rsendto";
    MinusOne "rsetsockopt";
    MinusOne "rshutdown";
    MinusOne "rsocket";
    MinusOne "rwrite";
    MinusOne "rwritev";
    Refuse "ibv_copy_ah_attr_from_kern";
    Refuse "ibv_copy_path_rec_from_kern";
    Refuse "ibv_copy_path_rec_to_kern";
    Refuse "ibv_copy_qp_attr_from_kern";
}

#[cfg(not(feature = "drivers"))]
const DRIVERS: &[Entry] = &[];

// Up to rdma-core 65.
#[cfg(feature = "drivers")]
names! { DRIVERS from PUBLIC.len();
    Refuse "__ioctl_final_num_attrs";
    Refuse "__verbs_log";
    Null "_verbs_init_and_alloc_context";
    Refuse "execute_ioctl";
    Refuse "ibv_cmd_advise_mr";
    Refuse "ibv_cmd_alloc_dm";
    Refuse "ibv_cmd_alloc_dmah";
    Refuse "ibv_cmd_alloc_mw";
    Refuse "ibv_cmd_alloc_pd";
    Refuse "ibv_cmd_attach_mcast";
    Refuse "ibv_cmd_close_xrcd";
    Refuse "ibv_cmd_create_ah";
    Refuse "ibv_cmd_create_comp_cntr";
    Refuse "ibv_cmd_create_counters";
    Refuse "ibv_cmd_create_cq";
    Refuse "ibv_cmd_create_cq_ex";
    Refuse "ibv_cmd_create_cq_ex2";
    Refuse "ibv_cmd_create_flow";
    Refuse "ibv_cmd_create_flow_action_esp";
    Refuse "ibv_cmd_create_qp";
    Refuse "ibv_cmd_create_qp_ex";
    Refuse "ibv_cmd_create_qp_ex2";
    Refuse "ibv_cmd_create_rwq_ind_table";
    Refuse "ibv_cmd_create_srq";
    Refuse "ibv_cmd_create_srq_ex";
    Refuse "ibv_cmd_create_wq";
    Refuse "ibv_cmd_dealloc_mw";
    Refuse "ibv_cmd_dealloc_pd";
    Refuse "ibv_cmd_dereg_mr";
    Refuse "ibv_cmd_destroy_ah";
    Refuse "ibv_cmd_destroy_comp_cntr";
    Refuse "ibv_cmd_destroy_counters";
    Refuse "ibv_cmd_destroy_cq";
    Refuse "ibv_cmd_destroy_flow";
    Refuse "ibv_cmd_destroy_flow_action";
    Refuse "ibv_cmd_destroy_qp";
    Refuse "ibv_cmd_destroy_rwq_ind_table";
    Refuse "ibv_cmd_destroy_srq";
    Refuse "ibv_cmd_destroy_wq";
    Refuse "ibv_cmd_detach_mcast";
    Refuse "ibv_cmd_export_dmabuf_fd";
    Refuse "ibv_cmd_free_dm";
    Refuse "ibv_cmd_free_dmah";
    Refuse "ibv_cmd_get_context";
    Refuse "ibv_cmd_inc_comp_cntr";
    Refuse "ibv_cmd_inc_err_comp_cntr";
    Refuse "ibv_cmd_modify_cq";
    Refuse "ibv_cmd_modify_flow_action_esp";
    Refuse "ibv_cmd_modify_qp";
    Refuse "ibv_cmd_modify_qp_ex";
    Refuse "ibv_cmd_modify_srq";
    Refuse "ibv_cmd_modify_wq";
    Refuse "ibv_cmd_open_qp";
    Refuse "ibv_cmd_open_xrcd";
    Refuse "ibv_cmd_poll_cq";
    Refuse "ibv_cmd_post_recv";
    Refuse "ibv_cmd_post_send";
    Refuse "ibv_cmd_post_srq_recv";
    Refuse "ibv_cmd_qp_attach_comp_cntr";
    Refuse "ibv_cmd_query_comp_cntr_caps";
    Refuse "ibv_cmd_query_context";
    Refuse "ibv_cmd_query_device";
    Refuse "ibv_cmd_query_device_any";
    Refuse "ibv_cmd_query_mr";
    Refuse "ibv_cmd_query_port";
    Refuse "ibv_cmd_query_port_speed";
    Refuse "ibv_cmd_query_qp";
    Refuse "ibv_cmd_query_srq";
    Refuse "ibv_cmd_read_comp_cntr";
    Refuse "ibv_cmd_read_counters";
    Refuse "ibv_cmd_read_err_comp_cntr";
    Refuse "ibv_cmd_reg_dm_mr";
    Refuse "ibv_cmd_reg_dmabuf_mr";
    Refuse "ibv_cmd_reg_mr";
    Refuse "ibv_cmd_reg_mr_ex";
    Refuse "ibv_cmd_req_notify_cq";
    Refuse "ibv_cmd_rereg_mr";
    Refuse "ibv_cmd_resize_cq";
    Refuse "ibv_cmd_set_comp_cntr";
    Refuse "ibv_cmd_set_err_comp_cntr";
    Null "ibv_dmabuf_heap_alloc";
    Refuse "ibv_dmabuf_heap_cc_shared_init";
    Refuse "ibv_dmabuf_heap_destroy";
    Refuse "ibv_dmabuf_heap_free";
    Refuse "ibv_read_ibdev_sysfs_file";
    Refuse "ibv_register_driver";
    Null "ibv_wr_opcode_str";
    Refuse "verbs_init_cq";
    Null "verbs_open_device";
    Refuse "verbs_register_driver_34";
    Refuse "verbs_register_driver_57";
    Refuse "verbs_register_driver_59";
    Refuse "verbs_register_driver_64";
    Refuse "verbs_register_driver_65";
    Refuse "verbs_set_ops";
    Refuse "verbs_uninit_context";
}
