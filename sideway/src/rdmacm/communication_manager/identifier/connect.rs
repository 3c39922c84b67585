//! Connecting and disconnecting.

use std::sync::atomic::Ordering;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_event_type, rdma_cm_id};

use super::Identifier;
use crate::error::VerbError;
use crate::ibverbs::async_event::AsyncEventType;
use crate::rdmacm::communication_manager::ConnectionParameter;
use crate::rdmacm::communication_manager::connection_parameter::private_data_len;

impl Identifier {
    /// `rdma_connect(id, conn_param)` — requests a connection from the peer, or looks up its queue pair for datagrams.
    /// The result is an event:
    ///
    /// | queue pair | event | next step |
    /// |---|---|---|
    /// | created through the identifier | [`Established`](super::super::EventKind::Established) | none: the queue pair is ready to send |
    /// | created by the program without the identifier | [`ConnectResponse`](super::super::EventKind::ConnectResponse) | the program modifies the queue pair ([`get_qp_attr`](Self::get_qp_attr)) and calls [`establish`](Self::establish) |
    /// | for datagrams | [`LookupResponse`](super::super::EventKind::LookupResponse) | none: the event contains the destination |
    ///
    /// On failure the event is [`Rejected`](super::super::EventKind::Rejected),
    /// [`Unreachable`](super::super::EventKind::Unreachable) or
    /// [`ConnectError`](super::super::EventKind::ConnectError).
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the route is not resolved, a depth exceeds the device's maximum, or there is more private data than
    ///   the transport permits.
    /// - Otherwise the errno of the library.
    ///
    /// # References
    ///
    /// [rdma_connect(3)](https://man7.org/linux/man-pages/man3/rdma_connect.3.html)
    #[doc(alias = "rdma_connect")]
    pub fn connect(&self, parameter: &ConnectionParameter) -> Result<(), VerbError> {
        const VERB: &str = "rdma_connect";
        let mut raw = parameter.to_raw(VERB, self.connect_data_len())?;
        // SAFETY: the identifier is live and on a device, which the library reads. The parameters and the data to which
        // they point are readable during the call.
        self.call_on_device(VERB, |id| unsafe { sys::rdma_connect(id, &mut raw) })
            .map_err(|error| self.explain_parameter(error, parameter, "the route is not resolved (see resolve_route)"))
    }

    /// `rdma_accept(id, conn_param)` — accepts a connect request or a lookup.
    /// [`Established`](super::super::EventKind::Established) follows once the peer has confirmed, but not for a lookup.
    ///
    /// If the queue pair was created through the identifier, this call first moves it to ReadyToSend. Otherwise, the
    /// program must move its queue pair to that state before the call. If the kernel refuses the call, for example
    /// because of the private data, the request is rejected.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the identifier does not belong to a request, or the request is already answered. Or a depth exceeds
    ///   the device's maximum, or there is more private data than the transport permits.
    /// - Otherwise the errno of the library, or of moving the queue pair.
    ///
    /// # References
    ///
    /// [rdma_accept(3)](https://man7.org/linux/man-pages/man3/rdma_accept.3.html)
    #[doc(alias = "rdma_accept")]
    pub fn accept(&self, parameter: &ConnectionParameter) -> Result<(), VerbError> {
        const VERB: &str = "rdma_accept";
        let mut raw = parameter.to_raw(VERB, 0)?;
        // SAFETY: as in `connect`.
        self.answer(VERB, |id| unsafe { sys::rdma_accept(id, &mut raw) })
            .map_err(|error| self.explain_parameter(error, parameter, "the peer may have given up"))
    }

    /// `rdma_reject(id, private_data, private_data_len)` — rejects a connect request or a lookup, with up to 148 bytes
    /// of private data. The peer receives [`Rejected`](super::super::EventKind::Rejected) or
    /// [`Unreachable`](super::super::EventKind::Unreachable).
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the identifier does not belong to a request, the request is already answered, or there is more
    ///   private data than the transport permits.
    /// - Otherwise the errno of the library.
    ///
    /// # References
    ///
    /// [rdma_reject(3)](https://man7.org/linux/man-pages/man3/rdma_reject.3.html)
    #[doc(alias = "rdma_reject")]
    pub fn reject(&self, private_data: &[u8]) -> Result<(), VerbError> {
        self.reject_by("rdma_reject", sys::rdma_reject, private_data)
    }

    /// Rejects a request with `function`, which has the signature of `rdma_reject`.
    pub(super) fn reject_by(
        &self,
        verb: &'static str,
        function: unsafe extern "C" fn(*mut rdma_cm_id, *const libc::c_void, u8) -> libc::c_int,
        private_data: &[u8],
    ) -> Result<(), VerbError> {
        let length = private_data_len(verb, private_data, 0)?;
        // SAFETY: the identifier is live, and `length` bytes are readable.
        self.answer(verb, |id| unsafe { function(id, private_data.as_ptr().cast(), length) }).map_err(|error| {
            if error.errno().raw() == libc::EINVAL && error.hint().is_none() {
                let sent = private_data.len();
                return error.with_hint(match sent {
                    0 => "the peer may have given up".to_owned(),
                    _ => format!("{sent} bytes of private data may be too many (see PrivateData)"),
                });
            }
            error
        })
    }

    /// `rdma_establish(id)` — notifies the peer that this side's queue pair is ready, after
    /// [`ConnectResponse`](super::super::EventKind::ConnectResponse). No event follows.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: no response has arrived, or the peer was already notified. Or the queue pair was created through the
    ///   identifier, so that the library establishes the connection itself.
    /// - Otherwise the errno of the library.
    ///
    /// # References
    ///
    /// [rdma_establish(3)](https://man7.org/linux/man-pages/man3/rdma_establish.3.html)
    #[doc(alias = "rdma_establish")]
    pub fn establish(&self) -> Result<(), VerbError> {
        // If the kernel does not expect this call, it rejects the connection. If this side has accepted a connection
        // that is then rejected, destroying the identifier never finishes (in `cm_destroy_id`, seen with Linux 6.1).
        // SAFETY: the identifier is live and locked.
        let establish = |id: *mut rdma_cm_id| unsafe {
            if (*id).qp.is_null() && self.is_answered.swap(false, Ordering::Relaxed) {
                return sys::rdma_establish(id);
            }
            *libc::__errno_location() = libc::EINVAL;
            -1
        };
        self.call("rdma_establish", establish).map_err(|error| {
            if error.errno().raw() == libc::EINVAL {
                return error.with_hint(
                    "no ConnectResponse is waiting: none arrived, the peer was already notified, or the queue pair \
                    was created through the identifier, which needs no call",
                );
            }
            error
        })
    }

    /// `rdma_disconnect(id)` — disconnects. A queue pair that was created through the identifier enters the error
    /// state, and its outstanding requests are flushed. The peer receives
    /// [`Disconnected`](super::super::EventKind::Disconnected) and confirms it with the same call, or by destroying its
    /// identifier. This side then receives the event too. If the peer does not confirm, the event follows after the
    /// kernel's time-out of one or two minutes.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: there is no connection, or the identifier has no device.
    /// - Otherwise the errno of the library.
    ///
    /// # References
    ///
    /// [rdma_disconnect(3)](https://man7.org/linux/man-pages/man3/rdma_disconnect.3.html)
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(&self) -> Result<(), VerbError> {
        // SAFETY: the identifier is live, and on a device, which the library reads.
        self.call_on_device("rdma_disconnect", |id| unsafe { sys::rdma_disconnect(id) }).map_err(|error| {
            if error.errno().raw() == libc::EINVAL && error.hint().is_none() {
                return error.with_hint("there is no connection");
            }
            error
        })
    }

    /// `rdma_notify(id, event)` — notifies the connection manager of an asynchronous event of the connection's queue
    /// pair. The connection manager uses only [`CommunicationEstablished`](AsyncEventType::CommunicationEstablished).
    /// This event means that data arrived before the peer's message that it is ready. That message may have been lost.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the event is another one, or no connection is being established.
    /// - Otherwise the errno of the library. `EISCONN`, which reports that the connection is already established, is
    ///   not an error.
    ///
    /// # References
    ///
    /// [rdma_notify(3)](https://man7.org/linux/man-pages/man3/rdma_notify.3.html)
    #[doc(alias = "rdma_notify")]
    pub fn notify(&self, event: AsyncEventType) -> Result<(), VerbError> {
        // SAFETY: the identifier is live, and on a device.
        let told =
            self.call_on_device("rdma_notify", |id| unsafe { sys::rdma_notify(id, ibv_event_type(event.raw())) });
        match told {
            Err(error) if error.errno().raw() == libc::EISCONN => Ok(()),
            told => told,
        }
    }

    #[cold]
    fn explain_parameter(&self, error: VerbError, parameter: &ConnectionParameter, state: &str) -> VerbError {
        if error.errno().raw() != libc::EINVAL || error.hint().is_some() {
            return error;
        }
        if let Some(device) = self.with_device(|context| context.query_device().ok()) {
            let (serves, begins) = (parameter.responder_resources(), parameter.initiator_depth());
            if serves != ConnectionParameter::MAX_DEPTH && u32::from(serves) > device.max_qp_rd_atom() {
                return error.with_hint(format!(
                    "responder_resources is {serves}, and the device has {}; use at most that, or \
                    ConnectionParameter::MAX_DEPTH",
                    device.max_qp_rd_atom()
                ));
            }
            if begins != ConnectionParameter::MAX_DEPTH && u32::from(begins) > device.max_qp_init_rd_atom() {
                return error.with_hint(format!(
                    "initiator_depth is {begins}, and the device has {}; use at most that, or \
                    ConnectionParameter::MAX_DEPTH",
                    device.max_qp_init_rd_atom()
                ));
            }
        }
        match parameter.private_data().len() {
            0 => error.with_hint(state.to_owned()),
            length => {
                error.with_hint(format!("{state}, or {length} bytes of private data are too many (see PrivateData)"))
            }
        }
    }
}
