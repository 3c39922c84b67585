//! What is written down: calls, requests, and what was done wrong.

use libc::c_int;

/// One call of a C function.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its name, without `ibv_`.
    pub verb: &'static str,
    /// Its arguments, as far as they tell something; pointers as addresses.
    pub arguments: Vec<(&'static str, u64)>,
    /// The errno it failed with.
    pub failed: Option<c_int>,
}

impl Call {
    /// The argument of this name.
    ///
    /// # Panics
    ///
    /// When the call has none.
    #[track_caller]
    pub fn argument(&self, name: &str) -> u64 {
        let found = self.arguments.iter().find(|(argument, _)| *argument == name);
        found.unwrap_or_else(|| panic!("{self:?} has no argument {name}")).1
    }
}

/// A send request as the device got it, or a receive (whose opcode is `None`).
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
    /// The data that came in the request.
    pub inline: Option<Vec<u8>>,
    /// All bytes together.
    pub length: u32,
}

/// What a completion says; all values as in C.
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
}

/// What can be made and has to be destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The array of `ibv_get_device_list`.
    DeviceList,
    /// `struct ibv_context`.
    Context,
    /// `struct ibv_pd`.
    ProtectionDomain,
    /// `struct ibv_mr`.
    MemoryRegion,
    /// `struct ibv_comp_channel`.
    CompletionChannel,
    /// `struct ibv_cq`.
    CompletionQueue,
    /// `struct ibv_qp`.
    QueuePair,
    /// `struct ibv_ah`.
    AddressHandle,
}
