//! Queue pairs without queues of their own: what flows bring to them is spread over the work queues of a table.

use std::mem;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_qp, ibv_qp_init_attr_ex, ibv_qp_init_attr_mask as mask, ibv_qp_type};

use super::RwqIndirectionTable;
use crate::error::VerbError;
use crate::ffi::check_pointer;
use crate::ibverbs::device_context::{RxHashFields, RxHashFunctions};
use crate::ibverbs::protection_domain::ProtectionDomain;
use crate::ibverbs::queue_pair::{Parents, QueuePairCore, QueuePairType, standard_transition};

const VERB: &str = "ibv_create_qp_ex";

/// Makes queue pairs for receive side scaling. Unless set: for raw packets, with the Toeplitz function over the addresses of
/// IPv4. A table and a key are always needed.
#[derive(Debug)]
pub struct RssQueuePairBuilder {
    pd: Arc<ProtectionDomain>,
    qp_type: QueuePairType,
    table: Option<Arc<RwqIndirectionTable>>,
    function: RxHashFunctions,
    key: Vec<u8>,
    fields: RxHashFields,
}

impl ProtectionDomain {
    /// A builder of queue pairs for receive side scaling in this domain.
    pub fn create_rss_qp_builder(self: &Arc<Self>) -> RssQueuePairBuilder {
        RssQueuePairBuilder::new(self)
    }
}

impl RssQueuePairBuilder {
    /// A builder in this domain.
    pub fn new(pd: &Arc<ProtectionDomain>) -> Self {
        Self {
            pd: Arc::clone(pd),
            qp_type: QueuePairType::RawPacket,
            table: None,
            function: RxHashFunctions::Toeplitz,
            key: Vec::new(),
            fields: RxHashFields::SourceIpv4 | RxHashFields::DestinationIpv4,
        }
    }

    /// The transport service: raw packets or, with some devices, datagrams.
    pub fn setup_qp_type(&mut self, qp_type: QueuePairType) -> &mut Self {
        self.qp_type = qp_type;
        self
    }

    /// Over which work queues packets are spread.
    pub fn setup_table(&mut self, table: &Arc<RwqIndirectionTable>) -> &mut Self {
        self.table = Some(Arc::clone(table));
        self
    }

    /// The function that hashes; the device tells which it has
    /// ([`rss_caps`](crate::ibverbs::device_context::DeviceAttr::rss_caps)).
    pub fn setup_hash_function(&mut self, function: RxHashFunctions) -> &mut Self {
        self.function = function;
        self
    }

    /// The key of the function: 40 bytes for Toeplitz.
    pub fn setup_hash_key(&mut self, key: &[u8]) -> &mut Self {
        self.key = key.to_vec();
        self
    }

    /// The fields of a packet that are hashed; with none, all packets go to the first queue of the table.
    pub fn setup_hash_fields(&mut self, fields: RxHashFields) -> &mut Self {
        self.fields = fields;
        self
    }

    /// `ibv_create_qp_ex(context, attr)` — makes a queue pair with `IBV_QP_INIT_ATTR_IND_TABLE` and
    /// `IBV_QP_INIT_ATTR_RX_HASH`.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: no table, or one of another device context; a service that has none of this; a key of a length that the
    ///   device does not take.
    /// - `EOPNOTSUPP`: the device has no receive side scaling, or not over these fields.
    /// - `EPERM`: raw packets need the capability `CAP_NET_RAW`.
    ///
    /// # References
    ///
    /// [ibv_create_qp_ex(3)](https://man7.org/linux/man-pages/man3/ibv_create_qp_ex.3.html)
    #[doc(alias = "IBV_QP_INIT_ATTR_RX_HASH")]
    #[doc(alias = "ibv_rx_hash_conf")]
    pub fn build(&self) -> Result<RssQueuePair, VerbError> {
        let context = self.pd.device_context();
        let Some(table) = &self.table else {
            return Err(VerbError::invalid(VERB, "no indirection table was given: call setup_table"));
        };
        if table.device_context().raw() != context.raw() {
            return Err(VerbError::invalid(
                VERB,
                "the indirection table belongs to another device context than the domain",
            ));
        }
        if !matches!(self.qp_type, QueuePairType::RawPacket | QueuePairType::UnreliableDatagram) {
            return Err(VerbError::invalid(
                VERB,
                format!("packets of {:?} are not spread: only RawPacket and UnreliableDatagram", self.qp_type),
            ));
        }
        let mut key = self.key.clone();
        let Ok(key_len) = u8::try_from(key.len()) else {
            return Err(VerbError::invalid(
                VERB,
                format!("the hash key has {} bytes: at most 255 can be said", key.len()),
            ));
        };
        // SAFETY: all-zero is legal: the struct has integers and pointers alone.
        let mut attr: ibv_qp_init_attr_ex = unsafe { mem::zeroed() };
        attr.qp_type = ibv_qp_type(self.qp_type.raw());
        attr.comp_mask =
            mask::IBV_QP_INIT_ATTR_PD.0 | mask::IBV_QP_INIT_ATTR_IND_TABLE.0 | mask::IBV_QP_INIT_ATTR_RX_HASH.0;
        attr.pd = self.pd.raw();
        attr.rwq_ind_tbl = table.raw();
        attr.rx_hash_conf.rx_hash_function = self.function.bits();
        attr.rx_hash_conf.rx_hash_key_len = key_len;
        attr.rx_hash_conf.rx_hash_key = key.as_mut_ptr();
        attr.rx_hash_conf.rx_hash_fields_mask = self.fields.bits();
        // SAFETY: domain and table are live and of this context; the attributes are complete for the mask, and the key is
        // there during the call.
        let qp = unsafe { sys::ibv_create_qp_ex(context.raw(), &mut attr) };
        let qp = check_pointer(VERB, qp).map_err(|error| self.explain(error))?;
        let parents =
            Parents { pd: Some(Arc::clone(&self.pd)), rwq_ind_table: Some(Arc::clone(table)), ..Parents::default() };
        // SAFETY: just made in this domain with this table, and without a context; ours alone.
        let core = unsafe {
            QueuePairCore::adopt(qp, (self.qp_type, standard_transition, false), None, parents, Arc::clone(context))
        };
        Ok(RssQueuePair { core })
    }

    #[cold]
    fn explain(&self, error: VerbError) -> VerbError {
        match error.errno().raw() {
            libc::EPERM => error.with_hint("queue pairs for raw packets need the capability CAP_NET_RAW"),
            libc::EOPNOTSUPP | libc::ENOSYS => error.with_hint(format!(
                "the device or its driver has no receive side scaling, or not for {:?} over {:?}",
                self.qp_type, self.fields
            )),
            libc::EINVAL if self.function == RxHashFunctions::Toeplitz && self.key.len() != 40 => {
                error.with_hint(format!("the hash key has {} bytes and Toeplitz has 40", self.key.len()))
            }
            _ => error,
        }
    }
}

/// A queue pair without queues of its own: flows bring packets to it, and it spreads them over the work queues of its table.
/// It can be steered to, changed and asked, as far as its driver goes along.
#[derive(Debug)]
pub struct RssQueuePair {
    core: Arc<QueuePairCore>,
}

impl RssQueuePair {
    /// The transport service.
    pub fn qp_type(&self) -> QueuePairType {
        self.core.qp_type()
    }

    /// `ibv_destroy_qp(qp)` — destroys the queue pair and reports, where dropping only logs.
    ///
    /// # Errors
    ///
    /// `EBUSY` while flows or asynchronous events hold it: it goes with the last of them; else the driver's errno, and the queue pair is leaked.
    pub fn close(self) -> Result<(), VerbError> {
        self.core.close()
    }

    /// The C object.
    ///
    /// # Safety
    ///
    /// It is used only while `self` lives, not destroyed, and not posted to: it has no queues.
    pub unsafe fn qp(&self) -> NonNull<ibv_qp> {
        self.core.as_non_null()
    }

    pub(crate) fn core(&self) -> &Arc<QueuePairCore> {
        &self.core
    }
}
