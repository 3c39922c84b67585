//! Queue pairs without queues. The device distributes the packets of their flows among the work queues of a table.

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
use crate::ibverbs::queue_pair::control::control_methods;
use crate::ibverbs::queue_pair::{Kept, Kind, Parents, QueuePairCore, QueuePairType, standard_transition};

const VERB: &str = "ibv_create_qp_ex";

/// Builds queue pairs for receive side scaling. By default, a queue pair is for raw packets, with the Toeplitz function
/// over IPv4 addresses. A table and a key are required.
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
    /// Creates a builder of queue pairs for receive side scaling in this domain.
    pub fn create_rss_qp_builder(self: &Arc<Self>) -> RssQueuePairBuilder {
        RssQueuePairBuilder::new(self)
    }
}

impl RssQueuePairBuilder {
    /// Creates a builder in this domain.
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

    /// Sets the transport service: raw packets or, with some devices, datagrams.
    pub fn setup_qp_type(&mut self, qp_type: QueuePairType) -> &mut Self {
        self.qp_type = qp_type;
        self
    }

    /// Sets the table of work queues.
    pub fn setup_table(&mut self, table: &Arc<RwqIndirectionTable>) -> &mut Self {
        self.table = Some(Arc::clone(table));
        self
    }

    /// Sets the hash function. [`rss_caps`](crate::ibverbs::device_context::DeviceAttr::rss_caps) lists the functions
    /// that the device supports.
    pub fn setup_hash_function(&mut self, function: RxHashFunctions) -> &mut Self {
        self.function = function;
        self
    }

    /// Sets the key of the hash function. Toeplitz requires 40 bytes.
    pub fn setup_hash_key(&mut self, key: &[u8]) -> &mut Self {
        self.key = key.to_vec();
        self
    }

    /// Sets the packet fields over which the hash is computed. Without fields, all packets go to the first queue of the
    /// table.
    pub fn setup_hash_fields(&mut self, fields: RxHashFields) -> &mut Self {
        self.fields = fields;
        self
    }

    /// `ibv_create_qp_ex(context, attr)` — builds a queue pair with `IBV_QP_INIT_ATTR_IND_TABLE` and
    /// `IBV_QP_INIT_ATTR_RX_HASH`.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the table is missing or belongs to another device context. Or the service does not support receive
    ///   side scaling, or the length of the key is unsupported.
    /// - `EOPNOTSUPP`: the device does not support receive side scaling, or these fields.
    /// - `EPERM`: the process lacks the capability `CAP_NET_RAW`, which raw packets require.
    ///
    /// # References
    ///
    /// [ibv_create_qp_ex(3)](https://man7.org/linux/man-pages/man3/ibv_create_qp_ex.3.html)
    #[doc(alias = "IBV_QP_INIT_ATTR_RX_HASH")]
    #[doc(alias = "ibv_rx_hash_conf")]
    pub fn build(&self) -> Result<RssQueuePair, VerbError> {
        let context = self.pd.device_context();
        let Some(table) = &self.table else {
            return Err(VerbError::invalid(VERB, "no indirection table is set; call setup_table"));
        };
        if table.device_context().raw() != context.raw() {
            return Err(VerbError::invalid(
                VERB,
                "the indirection table belongs to another device context than the domain; create both from one",
            ));
        }
        if !matches!(self.qp_type, QueuePairType::RawPacket | QueuePairType::UnreliableDatagram) {
            return Err(VerbError::invalid(
                VERB,
                format!(
                    "queue pairs of type {:?} do not support receive side scaling; use RawPacket or \
                    UnreliableDatagram",
                    self.qp_type
                ),
            ));
        }
        let mut key = self.key.clone();
        let Ok(key_len) = u8::try_from(key.len()) else {
            return Err(VerbError::invalid(VERB, format!("the hash key has {} bytes; use at most 255", key.len())));
        };
        // SAFETY: all zeros are a valid value, because the struct has only integers and pointers.
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
        // SAFETY: the domain and the table are live and belong to this context. The attributes are initialised
        // according to their mask, and the key is valid during the call.
        let qp = unsafe { sys::ibv_create_qp_ex(context.raw(), &mut attr) };
        let qp = check_pointer(VERB, qp).map_err(|error| self.explain(error))?;
        let origin: Kept = Arc::<RwqIndirectionTable>::clone(table);
        let parents = Parents { pd: Some(Arc::clone(&self.pd)), origin: Some(origin), ..Parents::default() };
        // SAFETY: the queue pair was just created in this domain with this table and without a context, and is not
        // shared.
        let core = unsafe {
            let kind = Kind { qp_type: self.qp_type, transitions: standard_transition, holds_sends: false };
            QueuePairCore::adopt(qp, kind, None, parents, Arc::clone(context))
        };
        Ok(RssQueuePair { core })
    }

    #[cold]
    fn explain(&self, error: VerbError) -> VerbError {
        match error.errno().raw() {
            libc::EPERM => error.with_hint(
                "queue pairs for raw packets need the capability CAP_NET_RAW; run \
                `setcap cap_net_raw+ep` on the program",
            ),
            libc::EOPNOTSUPP | libc::ENOSYS => error.with_hint(format!(
                "the device or its driver does not support receive side scaling, or {:?} over {:?}",
                self.qp_type, self.fields
            )),
            libc::EINVAL if self.function == RxHashFunctions::Toeplitz && self.key.len() != 40 => {
                error.with_hint(format!("the hash key has {} bytes; Toeplitz needs 40", self.key.len()))
            }
            _ => error,
        }
    }
}

/// A queue pair without queues. Flows direct packets to it, and it distributes them among the work queues of its table.
/// Some drivers permit modifying it, querying it, or using it in flow rules.
#[derive(Debug)]
pub struct RssQueuePair {
    core: Arc<QueuePairCore>,
}

control_methods!(RssQueuePair; modify);

impl RssQueuePair {
    /// Returns the transport service.
    pub fn qp_type(&self) -> QueuePairType {
        self.core.qp_type()
    }

    /// `ibv_destroy_qp(qp)` — destroys the queue pair. This method returns an error of the verb, whereas drop only logs
    /// it.
    ///
    /// # Errors
    ///
    /// Returns `EBUSY` if flows or asynchronous events still reference the queue pair. The queue pair is then destroyed
    /// when the last reference is dropped. Otherwise returns the driver's errno, and the queue pair is leaked.
    pub fn close(self) -> Result<(), VerbError> {
        self.core.close()
    }

    /// Returns the C object.
    ///
    /// # Safety
    ///
    /// Use the object only while `self` lives. Do not destroy it. Do not post to it, because it has no queues.
    pub unsafe fn qp(&self) -> NonNull<ibv_qp> {
        self.core.as_non_null()
    }

    pub(crate) fn core(&self) -> &Arc<QueuePairCore> {
        &self.core
    }
}
