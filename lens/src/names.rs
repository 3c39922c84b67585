//! The names of verbs' constants, as their manual pages write them, without the prefix.

use rdma_mummy_sys as ffi;

macro_rules! names {
    ($(#[$meta:meta])* $function:ident($Type:ident: $number:ty) { $($constant:ident => $name:literal,)* }) => {
        $(#[$meta])*
        pub(crate) fn $function(value: $number) -> String {
            match ffi::$Type(value as _) {
                $(ffi::$Type::$constant => $name.to_owned(),)*
                _ => value.to_string(),
            }
        }
    };
}

names! {
    /// `ibv_wc_status`.
    status(ibv_wc_status: u32) {
        IBV_WC_SUCCESS => "SUCCESS",
        IBV_WC_LOC_LEN_ERR => "LOC_LEN_ERR",
        IBV_WC_LOC_QP_OP_ERR => "LOC_QP_OP_ERR",
        IBV_WC_LOC_EEC_OP_ERR => "LOC_EEC_OP_ERR",
        IBV_WC_LOC_PROT_ERR => "LOC_PROT_ERR",
        IBV_WC_WR_FLUSH_ERR => "WR_FLUSH_ERR",
        IBV_WC_MW_BIND_ERR => "MW_BIND_ERR",
        IBV_WC_BAD_RESP_ERR => "BAD_RESP_ERR",
        IBV_WC_LOC_ACCESS_ERR => "LOC_ACCESS_ERR",
        IBV_WC_REM_INV_REQ_ERR => "REM_INV_REQ_ERR",
        IBV_WC_REM_ACCESS_ERR => "REM_ACCESS_ERR",
        IBV_WC_REM_OP_ERR => "REM_OP_ERR",
        IBV_WC_RETRY_EXC_ERR => "RETRY_EXC_ERR",
        IBV_WC_RNR_RETRY_EXC_ERR => "RNR_RETRY_EXC_ERR",
        IBV_WC_LOC_RDD_VIOL_ERR => "LOC_RDD_VIOL_ERR",
        IBV_WC_REM_INV_RD_REQ_ERR => "REM_INV_RD_REQ_ERR",
        IBV_WC_REM_ABORT_ERR => "REM_ABORT_ERR",
        IBV_WC_INV_EECN_ERR => "INV_EECN_ERR",
        IBV_WC_INV_EEC_STATE_ERR => "INV_EEC_STATE_ERR",
        IBV_WC_FATAL_ERR => "FATAL_ERR",
        IBV_WC_RESP_TIMEOUT_ERR => "RESP_TIMEOUT_ERR",
        IBV_WC_GENERAL_ERR => "GENERAL_ERR",
    }
}

names! {
    /// `ibv_gid_type`.
    gid_type(ibv_gid_type: u32) {
        IBV_GID_TYPE_IB => "IB",
        IBV_GID_TYPE_ROCE_V1 => "RoCE v1",
        IBV_GID_TYPE_ROCE_V2 => "RoCE v2",
    }
}

names! {
    /// `ibv_wr_opcode`.
    request(ibv_wr_opcode: u32) {
        IBV_WR_RDMA_WRITE => "RDMA_WRITE",
        IBV_WR_RDMA_WRITE_WITH_IMM => "RDMA_WRITE_WITH_IMM",
        IBV_WR_SEND => "SEND",
        IBV_WR_SEND_WITH_IMM => "SEND_WITH_IMM",
        IBV_WR_RDMA_READ => "RDMA_READ",
        IBV_WR_ATOMIC_CMP_AND_SWP => "ATOMIC_CMP_AND_SWP",
        IBV_WR_ATOMIC_FETCH_AND_ADD => "ATOMIC_FETCH_AND_ADD",
        IBV_WR_LOCAL_INV => "LOCAL_INV",
        IBV_WR_BIND_MW => "BIND_MW",
        IBV_WR_SEND_WITH_INV => "SEND_WITH_INV",
        IBV_WR_TSO => "TSO",
        IBV_WR_FLUSH => "FLUSH",
        IBV_WR_ATOMIC_WRITE => "ATOMIC_WRITE",
    }
}

names! {
    /// `ibv_wc_opcode`.
    completed(ibv_wc_opcode: u32) {
        IBV_WC_SEND => "SEND",
        IBV_WC_RDMA_WRITE => "RDMA_WRITE",
        IBV_WC_RDMA_READ => "RDMA_READ",
        IBV_WC_COMP_SWAP => "COMP_SWAP",
        IBV_WC_FETCH_ADD => "FETCH_ADD",
        IBV_WC_BIND_MW => "BIND_MW",
        IBV_WC_LOCAL_INV => "LOCAL_INV",
        IBV_WC_TSO => "TSO",
        IBV_WC_FLUSH => "FLUSH",
        IBV_WC_ATOMIC_WRITE => "ATOMIC_WRITE",
        IBV_WC_RECV => "RECV",
        IBV_WC_RECV_RDMA_WITH_IMM => "RECV_RDMA_WITH_IMM",
    }
}

names! {
    /// `ibv_qp_state`.
    state(ibv_qp_state: u32) {
        IBV_QPS_RESET => "RESET",
        IBV_QPS_INIT => "INIT",
        IBV_QPS_RTR => "RTR",
        IBV_QPS_RTS => "RTS",
        IBV_QPS_SQD => "SQD",
        IBV_QPS_SQE => "SQE",
        IBV_QPS_ERR => "ERR",
        IBV_QPS_UNKNOWN => "UNKNOWN",
    }
}

names! {
    /// `ibv_qp_type`.
    service(ibv_qp_type: u32) {
        IBV_QPT_RC => "RC",
        IBV_QPT_UC => "UC",
        IBV_QPT_UD => "UD",
        IBV_QPT_RAW_PACKET => "RAW_PACKET",
        IBV_QPT_XRC_SEND => "XRC_SEND",
        IBV_QPT_XRC_RECV => "XRC_RECV",
        IBV_QPT_DRIVER => "DRIVER",
    }
}

names! {
    /// `ibv_event_type`.
    event(ibv_event_type: u32) {
        IBV_EVENT_CQ_ERR => "CQ_ERR",
        IBV_EVENT_QP_FATAL => "QP_FATAL",
        IBV_EVENT_QP_REQ_ERR => "QP_REQ_ERR",
        IBV_EVENT_QP_ACCESS_ERR => "QP_ACCESS_ERR",
        IBV_EVENT_COMM_EST => "COMM_EST",
        IBV_EVENT_SQ_DRAINED => "SQ_DRAINED",
        IBV_EVENT_PATH_MIG => "PATH_MIG",
        IBV_EVENT_PATH_MIG_ERR => "PATH_MIG_ERR",
        IBV_EVENT_DEVICE_FATAL => "DEVICE_FATAL",
        IBV_EVENT_PORT_ACTIVE => "PORT_ACTIVE",
        IBV_EVENT_PORT_ERR => "PORT_ERR",
        IBV_EVENT_LID_CHANGE => "LID_CHANGE",
        IBV_EVENT_PKEY_CHANGE => "PKEY_CHANGE",
        IBV_EVENT_SM_CHANGE => "SM_CHANGE",
        IBV_EVENT_SRQ_ERR => "SRQ_ERR",
        IBV_EVENT_SRQ_LIMIT_REACHED => "SRQ_LIMIT_REACHED",
        IBV_EVENT_QP_LAST_WQE_REACHED => "QP_LAST_WQE_REACHED",
        IBV_EVENT_CLIENT_REREGISTER => "CLIENT_REREGISTER",
        IBV_EVENT_GID_CHANGE => "GID_CHANGE",
        IBV_EVENT_WQ_FATAL => "WQ_FATAL",
    }
}

names! {
    /// `rdma_port_space`.
    port_space(rdma_port_space: u32) {
        RDMA_PS_IPOIB => "IPOIB",
        RDMA_PS_TCP => "TCP",
        RDMA_PS_UDP => "UDP",
        RDMA_PS_IB => "IB",
    }
}

names! {
    /// `rdma_cm_event_type`.
    cm_event(rdma_cm_event_type: u32) {
        RDMA_CM_EVENT_ADDR_RESOLVED => "ADDR_RESOLVED",
        RDMA_CM_EVENT_ADDR_ERROR => "ADDR_ERROR",
        RDMA_CM_EVENT_ROUTE_RESOLVED => "ROUTE_RESOLVED",
        RDMA_CM_EVENT_ROUTE_ERROR => "ROUTE_ERROR",
        RDMA_CM_EVENT_CONNECT_REQUEST => "CONNECT_REQUEST",
        RDMA_CM_EVENT_CONNECT_RESPONSE => "CONNECT_RESPONSE",
        RDMA_CM_EVENT_CONNECT_ERROR => "CONNECT_ERROR",
        RDMA_CM_EVENT_UNREACHABLE => "UNREACHABLE",
        RDMA_CM_EVENT_REJECTED => "REJECTED",
        RDMA_CM_EVENT_ESTABLISHED => "ESTABLISHED",
        RDMA_CM_EVENT_DISCONNECTED => "DISCONNECTED",
        RDMA_CM_EVENT_DEVICE_REMOVAL => "DEVICE_REMOVAL",
        RDMA_CM_EVENT_MULTICAST_JOIN => "MULTICAST_JOIN",
        RDMA_CM_EVENT_MULTICAST_ERROR => "MULTICAST_ERROR",
        RDMA_CM_EVENT_ADDR_CHANGE => "ADDR_CHANGE",
        RDMA_CM_EVENT_TIMEWAIT_EXIT => "TIMEWAIT_EXIT",
    }
}

/// The names of the bits of `ibv_access_flags`, joined by `|`; `0` for none.
pub(crate) fn access(flags: u32) -> String {
    bits(
        flags,
        &[
            (1, "LOCAL_WRITE"),
            (2, "REMOTE_WRITE"),
            (4, "REMOTE_READ"),
            (8, "REMOTE_ATOMIC"),
            (16, "MW_BIND"),
            (32, "ZERO_BASED"),
            (64, "ON_DEMAND"),
            (128, "HUGETLB"),
            (256, "FLUSH_GLOBAL"),
            (512, "FLUSH_PERSISTENT"),
            (1 << 20, "RELAXED_ORDERING"),
        ],
    )
}

/// The names of the bits of `ibv_send_flags`.
pub(crate) fn send_flags(flags: u32) -> String {
    bits(flags, &[(1, "FENCE"), (2, "SIGNALED"), (4, "SOLICITED"), (8, "INLINE"), (16, "IP_CSUM")])
}

fn bits(flags: u32, names: &[(u32, &str)]) -> String {
    if flags == 0 {
        return "0".to_owned();
    }
    let mut parts: Vec<String> =
        names.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| (*name).to_owned()).collect();
    let rest = names.iter().fold(flags, |rest, (bit, _)| rest & !bit);
    if rest != 0 {
        parts.push(format!("{rest:#x}"));
    }
    parts.join("|")
}

/// The number of bytes of `ibv_mtu`.
pub(crate) fn mtu(mtu: u32) -> String {
    if (1..=5).contains(&mtu) { (128 << mtu).to_string() } else { mtu.to_string() }
}

/// The symbol of an errno value, such as `EINVAL`.
pub(crate) fn errno(code: i32) -> String {
    ERRNO
        .iter()
        .find(|(known, _)| *known == code)
        .map_or_else(|| format!("errno {code}"), |(_, name)| (*name).to_owned())
}

/// The errno value of a symbol.
pub(crate) fn errno_of(name: &str) -> Option<i32> {
    ERRNO.iter().find(|(_, known)| *known == name).map(|(code, _)| *code)
}

/// The status of a name, which a schedule writes with or without `_ERR`.
pub(crate) fn status_of(name: &str) -> Option<u32> {
    (1..24).find(|&number| {
        let known = status(number);
        known == name || known.strip_suffix("_ERR") == Some(name)
    })
}

macro_rules! errnos {
    ($($name:ident)*) => { &[$((libc::$name, stringify!($name))),*] };
}

const ERRNO: &[(i32, &str)] = errnos! {
    EPERM ENOENT EINTR EIO ENXIO E2BIG EBADF EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST ENODEV EINVAL ENFILE EMFILE ENOTTY
    EFBIG ENOSPC EPIPE EDOM ERANGE ENOSYS ENODATA ETIME EPROTO EOVERFLOW EMSGSIZE EPROTONOSUPPORT EOPNOTSUPP EAFNOSUPPORT
    EADDRINUSE EADDRNOTAVAIL ENETDOWN ENETUNREACH ECONNABORTED ECONNRESET ENOBUFS EISCONN ENOTCONN ETIMEDOUT ECONNREFUSED
    EHOSTDOWN EHOSTUNREACH EALREADY EINPROGRESS ESTALE ECANCELED
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_have_names() {
        assert_eq!(access(0), "0");
        assert_eq!(access(0b101), "LOCAL_WRITE|REMOTE_READ");
        assert_eq!(send_flags(2 | 1 << 9), "SIGNALED|0x200");
    }

    #[test]
    fn names_lead_back_to_numbers() {
        assert_eq!(errno_of("ENOMEM"), Some(libc::ENOMEM));
        assert_eq!(errno(libc::ENOMEM), "ENOMEM");
        assert_eq!(errno(12345), "errno 12345");
        for name in ["RETRY_EXC", "RETRY_EXC_ERR"] {
            assert_eq!(status_of(name).map(status).as_deref(), Some("RETRY_EXC_ERR"));
        }
        assert_eq!(status_of("SUCCESS"), None);
        assert_eq!(mtu(5), "4096");
    }
}
