//! Making connections, and ending them.

use std::sync::atomic::Ordering;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_event_type, rdma_cm_id};

use super::Identifier;
use crate::error::VerbError;
use crate::ibverbs::async_event::AsyncEventType;
use crate::rdmacm::communication_manager::ConnectionParameter;
use crate::rdmacm::communication_manager::connection_parameter::private_data_len;

impl Identifier {
    /// `rdma_connect(id, conn_param)` — asks the peer for a connection, or looks its queue pair for datagrams up. What comes:
    ///
    /// | queue pair | event | then |
    /// |---|---|---|
    /// | made through the identifier | [`Established`](super::super::EventKind::Established) | it is ready to send |
    /// | the program's own | [`ConnectResponse`](super::super::EventKind::ConnectResponse) | the program moves it ([`get_qp_attr`](Self::get_qp_attr)) and calls [`establish`](Self::establish) |
    /// | datagrams | [`LookupResponse`](super::super::EventKind::LookupResponse) | it says where to send |
    ///
    /// or [`Rejected`](super::super::EventKind::Rejected), [`Unreachable`](super::super::EventKind::Unreachable),
    /// [`ConnectError`](super::super::EventKind::ConnectError).
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the route is not resolved; a depth is above what the device has; more private data than the transport has room
    ///   for.
    /// - else the errno of the library.
    ///
    /// # References
    ///
    /// [rdma_connect(3)](https://man7.org/linux/man-pages/man3/rdma_connect.3.html)
    #[doc(alias = "rdma_connect")]
    pub fn connect(&self, parameter: &ConnectionParameter) -> Result<(), VerbError> {
        const VERB: &str = "rdma_connect";
        let mut raw = parameter.to_raw(VERB, self.connect_data_len())?;
        // SAFETY: the identifier is live and on a device, which the library looks at; the parameters, with what they point to, can
        // be read for the whole call.
        self.call_on_device(VERB, |id| unsafe { sys::rdma_connect(id, &mut raw) })
            .map_err(|error| self.explain_parameter(error, parameter, "the route is not resolved"))
    }

    /// `rdma_accept(id, conn_param)` — says yes to a connect request, or to a lookup.
    /// [`Established`](super::super::EventKind::Established) comes once the peer knows, but not for a lookup.
    ///
    /// A queue pair that was made through the identifier is moved to ReadyToSend first; one of the program's own has to be there
    /// already. A yes that the kernel refuses, as for its private data, is a no to the peer.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the identifier did not come with a request, or it has an answer; a depth is above what the device has; more
    ///   private data than the transport has room for.
    /// - else the errno of the library, or of moving the queue pair.
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
            .map_err(|error| self.explain_parameter(error, parameter, "perhaps the peer has given up"))
    }

    /// `rdma_reject(id, private_data, private_data_len)` — says no to a connect request, or to a lookup. The peer gets
    /// [`Rejected`](super::super::EventKind::Rejected), or [`Unreachable`](super::super::EventKind::Unreachable), with up to 148
    /// bytes to read.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the identifier did not come with a request, or it has an answer; more private data than the transport has room
    ///   for.
    /// - else the errno of the library.
    ///
    /// # References
    ///
    /// [rdma_reject(3)](https://man7.org/linux/man-pages/man3/rdma_reject.3.html)
    #[doc(alias = "rdma_reject")]
    pub fn reject(&self, private_data: &[u8]) -> Result<(), VerbError> {
        self.reject_by("rdma_reject", sys::rdma_reject, private_data)
    }

    /// Says no by `function`, which does as `rdma_reject`.
    pub(super) fn reject_by(
        &self,
        verb: &'static str,
        function: unsafe extern "C" fn(*mut rdma_cm_id, *const libc::c_void, u8) -> libc::c_int,
        private_data: &[u8],
    ) -> Result<(), VerbError> {
        let length = private_data_len(verb, private_data, 0)?;
        // SAFETY: the identifier is live, and so many bytes can be read.
        self.answer(verb, |id| unsafe { function(id, private_data.as_ptr().cast(), length) }).map_err(|error| {
            if error.errno().raw() == libc::EINVAL && error.hint().is_none() {
                let sent = private_data.len();
                return error.with_hint(match sent {
                    0 => "perhaps the peer has given up".to_owned(),
                    _ => format!(
                        "perhaps {sent} bytes of private data are more than there is room for (see PrivateData)"
                    ),
                });
            }
            error
        })
    }

    /// `rdma_establish(id)` — tells the peer that this side's queue pair is ready, after
    /// [`ConnectResponse`](super::super::EventKind::ConnectResponse). No event comes for it.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the queue pair was made through the identifier, which does this by itself; or no response came, or the
    ///   peer was told already.
    /// - else the errno of the library.
    ///
    /// # References
    ///
    /// [rdma_establish(3)](https://man7.org/linux/man-pages/man3/rdma_establish.3.html)
    #[doc(alias = "rdma_establish")]
    pub fn establish(&self) -> Result<(), VerbError> {
        // The kernel takes a word that it does not wait for to be a no to the peer. From the side that has said yes it then never
        // finishes destroying the identifier (`cm_destroy_id`, seen with Linux 6.1).
        // SAFETY: the identifier is live, and nobody else uses it.
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
                    "no ConnectResponse came, or the peer was told already, or the queue pair was made through the identifier, which is then \
                     established by itself",
                );
            }
            error
        })
    }

    /// `rdma_disconnect(id)` — ends the connection. A queue pair that was made through the identifier goes to the error state, and
    /// what is outstanding is flushed. The other side gets [`Disconnected`](super::super::EventKind::Disconnected) and answers with
    /// a call of its own, or by destroying its identifier; then this side gets it too. Where it does not answer, that takes the
    /// kernel's time-out: a minute or two.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: there is no connection, or the identifier is on no device.
    /// - else the errno of the library.
    ///
    /// # References
    ///
    /// [rdma_disconnect(3)](https://man7.org/linux/man-pages/man3/rdma_disconnect.3.html)
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(&self) -> Result<(), VerbError> {
        // SAFETY: the identifier is live, and on a device, which the library looks at.
        self.call_on_device("rdma_disconnect", |id| unsafe { sys::rdma_disconnect(id) }).map_err(|error| {
            if error.errno().raw() == libc::EINVAL && error.hint().is_none() {
                return error.with_hint("there is no connection");
            }
            error
        })
    }

    /// `rdma_notify(id, event)` — tells the connection manager of an asynchronous event of the connection's queue pair. Only
    /// [`CommunicationEstablished`](AsyncEventType::CommunicationEstablished) means something to it: data came before the peer's
    /// word that it is ready, which may have been lost.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: another event, or no connection is being made.
    /// - else the errno of the library. `EISCONN`, which tells that the connection is there already, is not one.
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
                    "responder_resources is {serves} and the device has {}; ConnectionParameter::MAX_DEPTH is as many as it has",
                    device.max_qp_rd_atom()
                ));
            }
            if begins != ConnectionParameter::MAX_DEPTH && u32::from(begins) > device.max_qp_init_rd_atom() {
                return error.with_hint(format!(
                    "initiator_depth is {begins} and the device has {}; ConnectionParameter::MAX_DEPTH is as many as it has",
                    device.max_qp_init_rd_atom()
                ));
            }
        }
        match parameter.private_data().len() {
            0 => error.with_hint(state.to_owned()),
            length => error.with_hint(format!(
                "{state}, or {length} bytes of private data are more than there is room for (see PrivateData)"
            )),
        }
    }
}
