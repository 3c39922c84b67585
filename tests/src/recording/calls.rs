//! The log: calls, requests, and violations.

use libc::c_int;

/// One call of a C function.
#[derive(Clone, Debug)]
pub struct Call {
    /// The function's name: without `ibv_`, but complete for the connection manager.
    pub verb: &'static str,
    /// The arguments that tests check; pointers as addresses.
    pub arguments: Vec<(&'static str, u64)>,
    /// The errno of a failed call.
    pub failed: Option<c_int>,
}

impl Call {
    /// The argument of this name.
    ///
    /// # Panics
    ///
    /// If the call has no such argument.
    #[track_caller]
    pub fn argument(&self, name: &str) -> u64 {
        let found = self.arguments.iter().find(|(argument, _)| *argument == name);
        found.unwrap_or_else(|| panic!("{self:?} has no argument {name}")).1
    }
}

/// A send request as the device received it, or a receive (with opcode `None`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Posted {
    /// Its number.
    pub wr_id: u64,
    /// `enum ibv_wr_opcode`.
    pub opcode: Option<u32>,
    /// `enum ibv_send_flags`, without the inline flag.
    pub flags: u32,
    /// The peer's address.
    pub remote_addr: u64,
    /// The peer's key.
    pub rkey: u32,
    /// Immediate data, in host byte order.
    pub imm_data: Option<u32>,
    /// Operands of an atomic operation: compare and swap, or add and zero.
    pub operands: (u64, u64),
    /// Key, address and length of each entry.
    pub entries: Vec<(u32, u64, u32)>,
    /// Inline data of the request.
    pub inline: Option<Vec<u8>>,
    /// The total length.
    pub length: u32,
    /// For a datagram: the address of its address handle, the peer's QP number, its Q_Key.
    pub datagram: Option<(u64, u32, u32)>,
    /// For an XRC request: the number of the peer's shared receive queue.
    pub srqn: Option<u32>,
    /// The key that is invalidated, remote or local.
    pub invalidate_rkey: Option<u32>,
    /// For a segmented packet: its header, and the payload bytes of a segment.
    pub segments: Option<(Vec<u8>, u16)>,
    /// For an atomic write on an extended queue pair: its bytes.
    pub atomic: Option<[u8; 8]>,
    /// For a flush: the length of its range, its type and its level.
    pub flush: Option<(u64, u8, u8)>,
    /// For the bind of a memory window.
    pub bind: Option<Bind>,
}

/// The binding of a memory window; objects as addresses.
#[expect(missing_docs, reason = "the fields are those of C")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bind {
    pub mw: u64,
    pub rkey: u32,
    pub mr: u64,
    pub addr: u64,
    pub length: u64,
    pub access: u32,
}

/// The fields of a completion; all values as in C.
#[expect(missing_docs, reason = "the fields are those of struct ibv_wc and the readers of struct ibv_cq_ex")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Completion {
    pub wr_id: u64,
    pub status: u32,
    pub opcode: u32,
    pub vendor_err: u32,
    pub byte_len: u32,
    /// In host byte order.
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: u32,
    pub slid: u32,
    pub sl: u8,
    pub dlid_path_bits: u8,
    pub completion_ts: u64,
    pub wallclock_ns: u64,
    pub cvlan: u16,
    pub flow_tag: u32,
    pub tm_tag: u64,
    pub tm_private: u32,
    pub pkey_index: u16,
}

/// The kinds of objects that must be destroyed after creation.
#[expect(missing_docs, reason = "the names are those of the wrappers, or of the structs")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The array of `ibv_get_device_list`.
    DeviceList,
    Context,
    ProtectionDomain,
    MemoryRegion,
    MemoryWindow,
    DeviceMemory,
    DmaHandle,
    Buffer,
    /// A domain, region or device memory that was imported.
    Import,
    CompletionChannel,
    CompletionQueue,
    QueuePair,
    SharedReceiveQueue,
    XrcDomain,
    AddressHandle,
    ThreadDomain,
    CompletionCounter,
    WorkQueue,
    IndirectionTable,
    Counters,
    FlowAction,
    Flow,
    /// A queue pair in a multicast group.
    MulticastMember,
    EventChannel,
    Identifier,
    /// An event that was read and not acknowledged.
    ConnectionEvent,
    /// The array of `rdma_get_devices`.
    OpenDevices,
    AddressInformation,
}
