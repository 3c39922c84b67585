//! `struct ibv_qp_attr`, which contains the values for `ibv_modify_qp` and the results of `ibv_query_qp`.

use rdma_mummy_sys::{
    ib_uverbs_access_flags, ibv_access_flags, ibv_ah_attr, ibv_mig_state, ibv_mtu, ibv_qp_attr,
    ibv_qp_attr_mask as mask,
};

use crate::qp::Attributes;
use crate::sys::errno::Errno;
use crate::verbs::port::PORT;
use crate::wire::address::Path;
use crate::wire::limits;
use crate::wire::packet::MAX_NUMBER;

const MAX_TIMER: u8 = 31;
const MAX_RETRIES: u8 = 7;
/// All valid access flags: those in the bindings, those of flush, and the optional flags, which a provider may ignore.
const ACCESS: u32 = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0
    | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0
    | ibv_access_flags::IBV_ACCESS_REMOTE_READ.0
    | ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0
    | ibv_access_flags::IBV_ACCESS_MW_BIND.0
    | ibv_access_flags::IBV_ACCESS_ZERO_BASED.0
    | ibv_access_flags::IBV_ACCESS_ON_DEMAND.0
    | ibv_access_flags::IBV_ACCESS_HUGETLB.0
    | ibv_access_flags::IBV_ACCESS_FLUSH_GLOBAL.0
    | ibv_access_flags::IBV_ACCESS_FLUSH_PERSISTENT.0
    | ib_uverbs_access_flags::IB_UVERBS_ACCESS_OPTIONAL_RANGE.0;

/// Applies the attributes in `given`; `path` reads an address vector.
///
/// # Errors
///
/// `EINVAL` if the device does not support a value, or if an alternate path is given, which is unsupported.
pub(super) fn apply(
    attributes: &mut Attributes,
    attr: &ibv_qp_attr,
    given: u32,
    path: impl Fn(&ibv_ah_attr) -> Result<Path, Errno>,
) -> Result<(), Errno> {
    let has = |bit: mask| given & bit.0 != 0;
    if has(mask::IBV_QP_PORT) {
        attributes.port = checked(attr.port_num, attr.port_num == PORT)?;
    }
    if has(mask::IBV_QP_PKEY_INDEX) {
        attributes.pkey_index = checked(attr.pkey_index, attr.pkey_index == 0)?;
    }
    if has(mask::IBV_QP_QKEY) {
        attributes.key = attr.qkey;
    }
    if has(mask::IBV_QP_ACCESS_FLAGS) {
        attributes.access = checked(attr.qp_access_flags, attr.qp_access_flags & !ACCESS == 0)?;
    }
    if has(mask::IBV_QP_AV) {
        attributes.path = Some(path(&attr.ah_attr)?);
    }
    if has(mask::IBV_QP_ALT_PATH) {
        // Alternate paths are rejected, as all RoCE devices under Linux do.
        return Err(Errno::INVALID);
    }
    if has(mask::IBV_QP_PATH_MIG_STATE) {
        // Path migration is unsupported, so any migration state is accepted and the state MIGRATED is always reported.
        checked((), attr.path_mig_state.0 <= ibv_mig_state::IBV_MIG_ARMED.0)?;
    }
    if has(mask::IBV_QP_PATH_MTU) {
        attributes.path_mtu = bytes(attr.path_mtu)?;
    }
    if has(mask::IBV_QP_DEST_QPN) {
        attributes.destination_number = attr.dest_qp_num & MAX_NUMBER;
    }
    if has(mask::IBV_QP_RQ_PSN) {
        attributes.rq_psn = attr.rq_psn & MAX_NUMBER;
    }
    if has(mask::IBV_QP_SQ_PSN) {
        attributes.sq_psn = attr.sq_psn & MAX_NUMBER;
    }
    if has(mask::IBV_QP_TIMEOUT) {
        attributes.timeout = at_most(attr.timeout, MAX_TIMER)?;
    }
    if has(mask::IBV_QP_MIN_RNR_TIMER) {
        // rxe and mlx5 use the lowest five bits. DLSlime passes 32.
        attributes.min_rnr_timer = attr.min_rnr_timer & MAX_TIMER;
    }
    if has(mask::IBV_QP_RETRY_CNT) {
        attributes.retry_count = at_most(attr.retry_cnt, MAX_RETRIES)?;
    }
    if has(mask::IBV_QP_RNR_RETRY) {
        attributes.rnr_retry = at_most(attr.rnr_retry, MAX_RETRIES)?;
    }
    if has(mask::IBV_QP_MAX_QP_RD_ATOMIC) {
        attributes.max_rd_atomic = at_most(attr.max_rd_atomic, MAX_READS)?;
    }
    if has(mask::IBV_QP_MAX_DEST_RD_ATOMIC) {
        attributes.max_dest_rd_atomic = at_most(attr.max_dest_rd_atomic, MAX_READS)?;
    }
    if has(mask::IBV_QP_EN_SQD_ASYNC_NOTIFY) {
        attributes.drain_notify = attr.en_sqd_async_notify != 0;
    }
    Ok(())
}

// The conversion is lossless, because the limit fits into a byte.
const MAX_READS: u8 = limits::MAX_RD_ATOMIC as u8;
const _: () = assert!(limits::MAX_RD_ATOMIC <= u8::MAX as u32);

fn checked<T>(value: T, is_valid: bool) -> Result<T, Errno> {
    if is_valid { Ok(value) } else { Err(Errno::INVALID) }
}

fn at_most(value: u8, max: u8) -> Result<u8, Errno> {
    checked(value, value <= max)
}

/// Returns the size of a path MTU in bytes.
fn bytes(mtu: ibv_mtu) -> Result<u32, Errno> {
    match mtu {
        ibv_mtu::IBV_MTU_256 => Ok(256),
        ibv_mtu::IBV_MTU_512 => Ok(512),
        ibv_mtu::IBV_MTU_1024 => Ok(1024),
        ibv_mtu::IBV_MTU_2048 => Ok(2048),
        ibv_mtu::IBV_MTU_4096 => Ok(4096),
        _ => Err(Errno::INVALID),
    }
}

/// Returns the path MTU that has this size in bytes.
pub(super) fn mtu(bytes: u32) -> ibv_mtu {
    match bytes {
        0..=256 => ibv_mtu::IBV_MTU_256,
        257..=512 => ibv_mtu::IBV_MTU_512,
        513..=1024 => ibv_mtu::IBV_MTU_1024,
        1025..=2048 => ibv_mtu::IBV_MTU_2048,
        _ => ibv_mtu::IBV_MTU_4096,
    }
}

#[cfg(test)]
mod tests {
    use std::mem::zeroed;

    use super::*;
    use crate::wire::address::Gid;

    const PATH: Path = Path {
        destination: Gid([1; 16]),
        source: Gid([2; 16]),
        source_index: 0,
        flow_label: 0,
        hop_limit: 64,
        traffic_class: 0,
        service_level: 0,
        port: 1,
        static_rate: 0,
    };

    /// Applies the attributes that `set` sets to the attributes of a QP in RESET.
    fn applied(given: mask, set: impl FnOnce(&mut ibv_qp_attr)) -> Result<Attributes, Errno> {
        // SAFETY: the type has only numbers, for which zero is valid.
        let mut attr: ibv_qp_attr = unsafe { zeroed() };
        set(&mut attr);
        let mut attributes = Attributes::new();
        apply(&mut attributes, &attr, given.0, |_| Ok(PATH))?;
        Ok(attributes)
    }

    fn is_accepted(given: mask, set: impl FnOnce(&mut ibv_qp_attr)) -> bool {
        applied(given, set).is_ok()
    }

    #[test]
    fn there_is_one_port_and_one_partition() {
        for port in 0..=u8::MAX {
            assert_eq!(is_accepted(mask::IBV_QP_PORT, |attr| attr.port_num = port), port == 1, "{port}");
        }
        assert!(is_accepted(mask::IBV_QP_PKEY_INDEX, |attr| attr.pkey_index = 0));
        assert!(!is_accepted(mask::IBV_QP_PKEY_INDEX, |attr| attr.pkey_index = 1));
    }

    #[test]
    fn timers_and_counts_have_limits() {
        for value in 0..=u8::MAX {
            assert_eq!(is_accepted(mask::IBV_QP_TIMEOUT, |attr| attr.timeout = value), value <= 31, "{value}");
            let attributes = applied(mask::IBV_QP_MIN_RNR_TIMER, |attr| attr.min_rnr_timer = value);
            assert_eq!(attributes.map(|attributes| attributes.min_rnr_timer), Ok(value & 31), "{value}");
            assert_eq!(is_accepted(mask::IBV_QP_RETRY_CNT, |attr| attr.retry_cnt = value), value <= 7, "{value}");
            assert_eq!(is_accepted(mask::IBV_QP_RNR_RETRY, |attr| attr.rnr_retry = value), value <= 7, "{value}");
            let reads = u32::from(value) <= limits::MAX_RD_ATOMIC;
            assert_eq!(is_accepted(mask::IBV_QP_MAX_QP_RD_ATOMIC, |attr| attr.max_rd_atomic = value), reads, "{value}");
            let is_valid = is_accepted(mask::IBV_QP_MAX_DEST_RD_ATOMIC, |attr| attr.max_dest_rd_atomic = value);
            assert_eq!(is_valid, reads, "{value}");
        }
    }

    #[test]
    fn path_mtu_has_five_values() {
        for raw in 0..10 {
            let attributes = applied(mask::IBV_QP_PATH_MTU, |attr| attr.path_mtu = ibv_mtu(raw));
            let bytes = attributes.ok().map(|attributes| attributes.path_mtu);
            assert_eq!(bytes, (1..=5).contains(&raw).then(|| 128 << raw), "{raw}");
            assert!(bytes.is_none_or(|bytes| mtu(bytes) == ibv_mtu(raw)), "{raw}");
        }
        assert!(!is_accepted(mask::IBV_QP_PATH_MTU, |attr| attr.path_mtu = ibv_mtu(u32::MAX)));
    }

    #[test]
    fn numbers_have_24_bits() {
        let given = mask(mask::IBV_QP_SQ_PSN.0 | mask::IBV_QP_RQ_PSN.0 | mask::IBV_QP_DEST_QPN.0);
        let attributes = applied(given, |attr| {
            (attr.sq_psn, attr.rq_psn, attr.dest_qp_num) = (0xff00_0001, 0x0100_0002, u32::MAX);
        });
        let attributes = attributes.unwrap_or(Attributes::new());
        assert_eq!((attributes.sq_psn, attributes.rq_psn, attributes.destination_number), (1, 2, 0xff_ffff));
    }

    #[test]
    fn unknown_access_flags_are_refused() {
        for shift in 0..32 {
            let is_known = shift < 10 || (20..30).contains(&shift);
            let taken = is_accepted(mask::IBV_QP_ACCESS_FLAGS, |attr| attr.qp_access_flags = 1 << shift);
            assert_eq!(taken, is_known, "{shift}");
        }
    }

    #[test]
    fn alternate_paths_are_refused() {
        assert!(!is_accepted(mask::IBV_QP_ALT_PATH, |attr| attr.alt_port_num = 1));
        for raw in 0..5 {
            let taken = is_accepted(mask::IBV_QP_PATH_MIG_STATE, |attr| attr.path_mig_state = ibv_mig_state(raw));
            assert_eq!(taken, raw <= 2, "{raw}");
        }
    }

    #[test]
    fn attributes_outside_of_the_mask_are_ignored() {
        let attributes = applied(mask(0), |attr| {
            (attr.port_num, attr.timeout, attr.path_mtu, attr.sq_psn) = (9, 99, ibv_mtu(9), 9);
            attr.qkey = 9;
        });
        let attributes = attributes.unwrap_or(Attributes { port: 0, ..Attributes::new() });
        assert_eq!((attributes.port, attributes.timeout, attributes.path_mtu), (1, 0, limits::MTU));
        assert_eq!((attributes.sq_psn, attributes.key, attributes.path), (0, 0, None));
    }

    #[test]
    fn invalid_address_is_refused() {
        // SAFETY: the type has only numbers, for which zero is valid.
        let attr: ibv_qp_attr = unsafe { zeroed() };
        for bit in [mask::IBV_QP_AV, mask::IBV_QP_ALT_PATH] {
            let result = apply(&mut Attributes::new(), &attr, bit.0, |_| Err(Errno::INVALID));
            assert_eq!(result, Err(Errno::INVALID));
        }
    }
}
