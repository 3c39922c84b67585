//! `struct rdma_conn_param`: the parameters of a connection.

use std::fmt;

use libc::c_void;
use rdma_mummy_sys::rdma_conn_param;

use crate::error::VerbError;

/// `struct rdma_conn_param` — the parameters that one side sends with [`connect`](super::Identifier::connect) or
/// [`accept`](super::Identifier::accept).
///
/// ```
/// use sideway::rdmacm::communication_manager::ConnectionParameter;
///
/// let mut parameter = ConnectionParameter::default();
/// parameter.setup_responder_resources(4).setup_private_data(b"my protocol, version 1");
/// assert_eq!(parameter.private_data(), b"my protocol, version 1");
/// ```
#[doc(alias = "rdma_conn_param")]
#[derive(Clone, PartialEq, Eq)]
pub struct ConnectionParameter {
    private_data: Vec<u8>,
    responder_resources: u8,
    initiator_depth: u8,
    flow_control: bool,
    retry_count: u8,
    rnr_retry_count: u8,
    srq: bool,
    qp_number: u32,
}

impl ConnectionParameter {
    /// The largest value for [`responder_resources`](Self::setup_responder_resources) and
    /// [`initiator_depth`](Self::setup_initiator_depth). It selects the device's maximum. In
    /// [`accept`](super::Identifier::accept), it selects at most the number that the peer requested.
    #[doc(alias = "RDMA_MAX_RESP_RES")]
    #[doc(alias = "RDMA_MAX_INIT_DEPTH")]
    pub const MAX_DEPTH: u8 = u8::MAX;

    /// Creates parameters with all numbers zero. They permit no reads or atomics in either direction, and no retries.
    /// See also [`default`](Self::default).
    pub fn new() -> Self {
        Self {
            private_data: Vec::new(),
            responder_resources: 0,
            initiator_depth: 0,
            flow_control: false,
            retry_count: 0,
            rnr_retry_count: 0,
            srq: false,
            qp_number: 0,
        }
    }

    /// `private_data`: sets the data for the peer, at most 255 bytes. The transport permits less; see
    /// [`PrivateData`](super::PrivateData).
    pub fn setup_private_data(&mut self, private_data: &[u8]) -> &mut Self {
        private_data.clone_into(&mut self.private_data);
        self
    }

    /// Returns the private data.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// `responder_resources`: sets how many reads and atomics of the peer this side serves at the same time. The number
    /// is at most the device's [`max_qp_rd_atom`](crate::ibverbs::device_context::DeviceAttr::max_qp_rd_atom), or
    /// [`MAX_DEPTH`](Self::MAX_DEPTH).
    pub fn setup_responder_resources(&mut self, responder_resources: u8) -> &mut Self {
        self.responder_resources = responder_resources;
        self
    }

    /// Returns how many reads and atomics of the peer this side serves at the same time.
    pub fn responder_resources(&self) -> u8 {
        self.responder_resources
    }

    /// `initiator_depth`: sets how many reads and atomics this side may have outstanding. The number is at most the
    /// device's [`max_qp_init_rd_atom`](crate::ibverbs::device_context::DeviceAttr::max_qp_init_rd_atom), or
    /// [`MAX_DEPTH`](Self::MAX_DEPTH). In an accepting reply, it must not exceed the number that the request offers.
    pub fn setup_initiator_depth(&mut self, initiator_depth: u8) -> &mut Self {
        self.initiator_depth = initiator_depth;
        self
    }

    /// Returns how many reads and atomics this side may have outstanding.
    pub fn initiator_depth(&self) -> u8 {
        self.initiator_depth
    }

    /// `flow_control`: sets whether the hardware has end-to-end flow control. The peer receives this value; it has no
    /// effect on this side.
    pub fn setup_flow_control(&mut self, flow_control: bool) -> &mut Self {
        self.flow_control = flow_control;
        self
    }

    /// Whether the hardware has end-to-end flow control.
    pub fn flow_control(&self) -> bool {
        self.flow_control
    }

    /// `retry_count`: sets how often an unacknowledged request is retransmitted, 0 to 7. The value of the active side
    /// applies to both sides.
    pub fn setup_retry_count(&mut self, retry_count: u8) -> &mut Self {
        self.retry_count = retry_count;
        self
    }

    /// Returns how often an unacknowledged request is retransmitted.
    pub fn retry_count(&self) -> u8 {
        self.retry_count
    }

    /// `rnr_retry_count`: sets how often a message is retransmitted if the receiver has no receive posted, 0 to 7. The
    /// value 7 means that there is no limit. The value of the active side applies to both sides.
    pub fn setup_rnr_retry_count(&mut self, rnr_retry_count: u8) -> &mut Self {
        self.rnr_retry_count = rnr_retry_count;
        self
    }

    /// Returns how often a message is retransmitted if the receiver has no receive posted.
    pub fn rnr_retry_count(&self) -> u8 {
        self.rnr_retry_count
    }

    /// `srq`: sets whether the queue pair receives from a shared receive queue. This is ignored if the queue pair was
    /// created through the identifier, because the identifier then has this information.
    pub fn setup_srq(&mut self, srq: bool) -> &mut Self {
        self.srq = srq;
        self
    }

    /// Whether the queue pair receives from a shared receive queue.
    pub fn srq(&self) -> bool {
        self.srq
    }

    /// `qp_num`: sets the queue pair number, 24 bits. This is ignored if the queue pair was created through the
    /// identifier, because the identifier then has this information.
    pub fn setup_qp_number(&mut self, qp_number: u32) -> &mut Self {
        self.qp_number = qp_number;
        self
    }

    /// Returns the queue pair number.
    pub fn qp_number(&self) -> u32 {
        self.qp_number
    }

    /// Returns the C struct. It points to the private data of `self`.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if the private data together with the `before` bytes that the library prepends exceeds 255
    /// bytes.
    pub(super) fn to_raw(&self, verb: &'static str, before: usize) -> Result<rdma_conn_param, VerbError> {
        let private_data_len = private_data_len(verb, &self.private_data, before)?;
        Ok(rdma_conn_param {
            private_data: self.private_data.as_ptr().cast::<c_void>(),
            private_data_len,
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            flow_control: self.flow_control.into(),
            retry_count: self.retry_count,
            rnr_retry_count: self.rnr_retry_count,
            srq: self.srq.into(),
            qp_num: self.qp_number,
        })
    }
}

/// Returns the length of the private data for C. C copies the data into a buffer of 256 bytes, after `before` bytes of
/// its own.
pub(super) fn private_data_len(verb: &'static str, private_data: &[u8], before: usize) -> Result<u8, VerbError> {
    match u8::try_from(private_data.len().saturating_add(before)) {
        Ok(_) => Ok(private_data.len() as u8),
        Err(_) => Err(VerbError::invalid(
            verb,
            format!(
                "{} bytes of private data are too many; use at most {}",
                private_data.len(),
                usize::from(u8::MAX).saturating_sub(before)
            ),
        )),
    }
}

/// The defaults are one outstanding read or atomic in each direction, 7 retries, and unlimited retries if no receive is
/// posted.
impl Default for ConnectionParameter {
    fn default() -> Self {
        Self { responder_resources: 1, initiator_depth: 1, retry_count: 7, rnr_retry_count: 7, ..Self::new() }
    }
}

impl fmt::Debug for ConnectionParameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionParameter")
            .field("private_data", &format_args!("\"{}\"", self.private_data.escape_ascii()))
            .field("responder_resources", &self.responder_resources)
            .field("initiator_depth", &self.initiator_depth)
            .field("flow_control", &self.flow_control)
            .field("retry_count", &self.retry_count)
            .field("rnr_retry_count", &self.rnr_retry_count)
            .field("srq", &self.srq)
            .field("qp_number", &self.qp_number)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_long_private_data_is_refused() {
        let mut parameter = ConnectionParameter::default();
        parameter.setup_private_data(&[7; 255]);
        assert_eq!(parameter.to_raw("rdma_connect", 0).unwrap().private_data_len, 255);
        let error = parameter.to_raw("rdma_connect", 1).unwrap_err();
        assert_eq!(error.hint(), Some("255 bytes of private data are too many; use at most 254"));
        parameter.setup_private_data(&[7; 256]);
        let error = parameter.to_raw("rdma_connect", 0).unwrap_err();
        assert_eq!(
            error.to_string(),
            "rdma_connect: EINVAL (Invalid argument): 256 bytes of private data are too many; use at most 255"
        );
    }
}
