//! Conversions of values to texts and numbers, which need no library.

use core::ffi::{CStr, c_char, c_int};

use crate::bindings::rdma_cma::rdma_cm_event_type;
use crate::bindings::verbs::*;

const UNKNOWN: &CStr = c"unknown";

/// `ibv_wc_status_str`: the meaning of a completion status.
pub extern "C" fn ibv_wc_status_str(status: ibv_wc_status) -> *const c_char {
    match status {
        ibv_wc_status::IBV_WC_SUCCESS => c"success",
        ibv_wc_status::IBV_WC_LOC_LEN_ERR => c"local length error",
        ibv_wc_status::IBV_WC_LOC_QP_OP_ERR => c"local QP operation error",
        ibv_wc_status::IBV_WC_LOC_EEC_OP_ERR => c"local EE context operation error",
        ibv_wc_status::IBV_WC_LOC_PROT_ERR => c"local protection error",
        ibv_wc_status::IBV_WC_WR_FLUSH_ERR => c"work request flushed",
        ibv_wc_status::IBV_WC_MW_BIND_ERR => c"memory window bind error",
        ibv_wc_status::IBV_WC_BAD_RESP_ERR => c"bad response",
        ibv_wc_status::IBV_WC_LOC_ACCESS_ERR => c"local access error",
        ibv_wc_status::IBV_WC_REM_INV_REQ_ERR => c"remote invalid request",
        ibv_wc_status::IBV_WC_REM_ACCESS_ERR => c"remote access error",
        ibv_wc_status::IBV_WC_REM_OP_ERR => c"remote operation error",
        ibv_wc_status::IBV_WC_RETRY_EXC_ERR => c"transport retry counter exceeded",
        ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR => c"RNR retry counter exceeded",
        ibv_wc_status::IBV_WC_LOC_RDD_VIOL_ERR => c"local RDD violation",
        ibv_wc_status::IBV_WC_REM_INV_RD_REQ_ERR => c"remote invalid RD request",
        ibv_wc_status::IBV_WC_REM_ABORT_ERR => c"remote aborted",
        ibv_wc_status::IBV_WC_INV_EECN_ERR => c"invalid EE context number",
        ibv_wc_status::IBV_WC_INV_EEC_STATE_ERR => c"invalid EE context state",
        ibv_wc_status::IBV_WC_FATAL_ERR => c"fatal error",
        ibv_wc_status::IBV_WC_RESP_TIMEOUT_ERR => c"response time-out",
        ibv_wc_status::IBV_WC_GENERAL_ERR => c"general error",
        ibv_wc_status::IBV_WC_TM_ERR => c"tag matching error",
        ibv_wc_status::IBV_WC_TM_RNDV_INCOMPLETE => c"tag matching rendezvous incomplete",
        _ => UNKNOWN,
    }
    .as_ptr()
}

/// `ibv_node_type_str`: the kind of a device's node; see `ibv_node_type_str(3)`.
pub extern "C" fn ibv_node_type_str(node_type: ibv_node_type) -> *const c_char {
    match node_type {
        ibv_node_type::IBV_NODE_CA => c"InfiniBand channel adapter",
        ibv_node_type::IBV_NODE_SWITCH => c"InfiniBand switch",
        ibv_node_type::IBV_NODE_ROUTER => c"InfiniBand router",
        ibv_node_type::IBV_NODE_RNIC => c"iWARP NIC",
        ibv_node_type::IBV_NODE_USNIC => c"usNIC",
        ibv_node_type::IBV_NODE_USNIC_UDP => c"usNIC over UDP",
        ibv_node_type::IBV_NODE_UNSPECIFIED => c"unspecified",
        _ => UNKNOWN,
    }
    .as_ptr()
}

/// `ibv_port_state_str`: the state of a port; see `ibv_port_state_str(3)`.
pub extern "C" fn ibv_port_state_str(port_state: ibv_port_state) -> *const c_char {
    match port_state {
        ibv_port_state::IBV_PORT_NOP => c"no change",
        ibv_port_state::IBV_PORT_DOWN => c"down",
        ibv_port_state::IBV_PORT_INIT => c"init",
        ibv_port_state::IBV_PORT_ARMED => c"armed",
        ibv_port_state::IBV_PORT_ACTIVE => c"active",
        ibv_port_state::IBV_PORT_ACTIVE_DEFER => c"active defer",
        _ => UNKNOWN,
    }
    .as_ptr()
}

/// `ibv_event_type_str`: the meaning of an asynchronous event; see `ibv_event_type_str(3)`.
pub extern "C" fn ibv_event_type_str(event: ibv_event_type) -> *const c_char {
    match event {
        ibv_event_type::IBV_EVENT_CQ_ERR => c"CQ error",
        ibv_event_type::IBV_EVENT_QP_FATAL => c"QP fatal error",
        ibv_event_type::IBV_EVENT_QP_REQ_ERR => c"QP received an invalid request",
        ibv_event_type::IBV_EVENT_QP_ACCESS_ERR => c"QP access violation",
        ibv_event_type::IBV_EVENT_COMM_EST => c"communication established",
        ibv_event_type::IBV_EVENT_SQ_DRAINED => c"send queue drained",
        ibv_event_type::IBV_EVENT_PATH_MIG => c"path migrated",
        ibv_event_type::IBV_EVENT_PATH_MIG_ERR => c"path migration failed",
        ibv_event_type::IBV_EVENT_DEVICE_FATAL => c"device fatal error",
        ibv_event_type::IBV_EVENT_PORT_ACTIVE => c"port active",
        ibv_event_type::IBV_EVENT_PORT_ERR => c"port error",
        ibv_event_type::IBV_EVENT_LID_CHANGE => c"LID change",
        ibv_event_type::IBV_EVENT_PKEY_CHANGE => c"P_Key change",
        ibv_event_type::IBV_EVENT_SM_CHANGE => c"subnet manager change",
        ibv_event_type::IBV_EVENT_SRQ_ERR => c"SRQ error",
        ibv_event_type::IBV_EVENT_SRQ_LIMIT_REACHED => c"SRQ limit reached",
        ibv_event_type::IBV_EVENT_QP_LAST_WQE_REACHED => c"last WQE reached",
        ibv_event_type::IBV_EVENT_CLIENT_REREGISTER => c"clients must register again",
        ibv_event_type::IBV_EVENT_GID_CHANGE => c"GID table change",
        ibv_event_type::IBV_EVENT_WQ_FATAL => c"WQ fatal error",
        _ => UNKNOWN,
    }
    .as_ptr()
}

/// `rdma_event_str`: the name of a connection manager event; see `rdma_event_str(3)`.
pub extern "C" fn rdma_event_str(event: rdma_cm_event_type) -> *const c_char {
    match event {
        rdma_cm_event_type::RDMA_CM_EVENT_ADDR_RESOLVED => c"RDMA_CM_EVENT_ADDR_RESOLVED",
        rdma_cm_event_type::RDMA_CM_EVENT_ADDR_ERROR => c"RDMA_CM_EVENT_ADDR_ERROR",
        rdma_cm_event_type::RDMA_CM_EVENT_ROUTE_RESOLVED => c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        rdma_cm_event_type::RDMA_CM_EVENT_ROUTE_ERROR => c"RDMA_CM_EVENT_ROUTE_ERROR",
        rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST => c"RDMA_CM_EVENT_CONNECT_REQUEST",
        rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_RESPONSE => c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_ERROR => c"RDMA_CM_EVENT_CONNECT_ERROR",
        rdma_cm_event_type::RDMA_CM_EVENT_UNREACHABLE => c"RDMA_CM_EVENT_UNREACHABLE",
        rdma_cm_event_type::RDMA_CM_EVENT_REJECTED => c"RDMA_CM_EVENT_REJECTED",
        rdma_cm_event_type::RDMA_CM_EVENT_ESTABLISHED => c"RDMA_CM_EVENT_ESTABLISHED",
        rdma_cm_event_type::RDMA_CM_EVENT_DISCONNECTED => c"RDMA_CM_EVENT_DISCONNECTED",
        rdma_cm_event_type::RDMA_CM_EVENT_DEVICE_REMOVAL => c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        rdma_cm_event_type::RDMA_CM_EVENT_MULTICAST_JOIN => c"RDMA_CM_EVENT_MULTICAST_JOIN",
        rdma_cm_event_type::RDMA_CM_EVENT_MULTICAST_ERROR => c"RDMA_CM_EVENT_MULTICAST_ERROR",
        rdma_cm_event_type::RDMA_CM_EVENT_ADDR_CHANGE => c"RDMA_CM_EVENT_ADDR_CHANGE",
        rdma_cm_event_type::RDMA_CM_EVENT_TIMEWAIT_EXIT => c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
        _ => c"unknown event",
    }
    .as_ptr()
}

/// A rate, its multiple of 2.5 Gb/s in the InfiniBand specification, if any, and its Mb/s.
///
/// Rates without a multiple are those of lanes with 64b/66b coding, 14.0625 and 25.78125 Gb/s, times 4, 8 and 12. Two
/// rates of that kind have a rounded multiple.
const RATES: [(ibv_rate, Option<c_int>, c_int); 23] = [
    (ibv_rate::IBV_RATE_2_5_GBPS, Some(1), 2_500),
    (ibv_rate::IBV_RATE_5_GBPS, Some(2), 5_000),
    (ibv_rate::IBV_RATE_10_GBPS, Some(4), 10_000),
    (ibv_rate::IBV_RATE_20_GBPS, Some(8), 20_000),
    (ibv_rate::IBV_RATE_30_GBPS, Some(12), 30_000),
    (ibv_rate::IBV_RATE_40_GBPS, Some(16), 40_000),
    (ibv_rate::IBV_RATE_60_GBPS, Some(24), 60_000),
    (ibv_rate::IBV_RATE_80_GBPS, Some(32), 80_000),
    (ibv_rate::IBV_RATE_120_GBPS, Some(48), 120_000),
    (ibv_rate::IBV_RATE_14_GBPS, None, 14_062),
    (ibv_rate::IBV_RATE_56_GBPS, None, 56_250),
    (ibv_rate::IBV_RATE_112_GBPS, None, 112_500),
    (ibv_rate::IBV_RATE_168_GBPS, None, 168_750),
    (ibv_rate::IBV_RATE_25_GBPS, None, 25_781),
    (ibv_rate::IBV_RATE_100_GBPS, None, 103_125),
    (ibv_rate::IBV_RATE_200_GBPS, None, 206_250),
    (ibv_rate::IBV_RATE_300_GBPS, None, 309_375),
    (ibv_rate::IBV_RATE_28_GBPS, Some(11), 28_125),
    (ibv_rate::IBV_RATE_50_GBPS, Some(20), 53_125),
    (ibv_rate::IBV_RATE_400_GBPS, Some(160), 425_000),
    (ibv_rate::IBV_RATE_600_GBPS, Some(240), 637_500),
    (ibv_rate::IBV_RATE_800_GBPS, Some(320), 850_000),
    (ibv_rate::IBV_RATE_1200_GBPS, Some(480), 1_275_000),
];

/// `ibv_rate_to_mult`: the multiple of 2.5 Gb/s, or -1 if `rate` has none; see `ibv_rate_to_mult(3)`.
pub extern "C" fn ibv_rate_to_mult(rate: ibv_rate) -> c_int {
    RATES.iter().find(|entry| entry.0 == rate).and_then(|entry| entry.1).unwrap_or(-1)
}

/// `mult_to_ibv_rate`: the rate that is `mult` times 2.5 Gb/s, or `IBV_RATE_MAX`; see `mult_to_ibv_rate(3)`.
pub extern "C" fn mult_to_ibv_rate(mult: c_int) -> ibv_rate {
    RATES.iter().find(|entry| entry.1 == Some(mult)).map_or(ibv_rate::IBV_RATE_MAX, |entry| entry.0)
}

/// `ibv_rate_to_mbps`: the rate in Mb/s, or -1 if `rate` is unknown; see `ibv_rate_to_mbps(3)`.
pub extern "C" fn ibv_rate_to_mbps(rate: ibv_rate) -> c_int {
    RATES.iter().find(|entry| entry.0 == rate).map_or(-1, |entry| entry.2)
}

/// `mbps_to_ibv_rate`: the rate of exactly `mbps` Mb/s, or `IBV_RATE_MAX`; see `mbps_to_ibv_rate(3)`.
pub extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> ibv_rate {
    RATES.iter().find(|entry| entry.2 == mbps).map_or(ibv_rate::IBV_RATE_MAX, |entry| entry.0)
}
