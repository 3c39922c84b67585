//! The objects from which a queue pair is created, checked before the library is called.

use std::sync::Arc;

use super::{Parents, QueuePairBuilder, QueuePairType, Service};
use crate::error::VerbError;
use crate::ibverbs::completion::CompletionQueueCore;
use crate::ibverbs::shared_receive_queue::{SharedReceiveQueueCore, SharedReceiveQueueType};
use crate::ibverbs::work_request::MOST_REQUESTS;

impl<T: Service> QueuePairBuilder<T> {
    /// Checks the objects from which the queue pair is created, and other arguments, before calling the library.
    pub(super) fn parents(&self, verb: &'static str) -> Result<Parents, VerbError> {
        self.check_type(verb)?;
        self.pd.device_context().require_operations(
            verb,
            &[
                ("post_send", |operations| operations.post_send.is_some()),
                ("post_recv", |operations| operations.post_recv.is_some()),
            ],
        )?;
        let limit = MOST_REQUESTS;
        let cap = &self.cap;
        if [cap.max_send_wr, cap.max_recv_wr, cap.max_send_sge, cap.max_recv_sge, cap.max_inline_data]
            .iter()
            .any(|&value| value > limit)
        {
            return Err(VerbError::invalid(verb, format!("a capacity exceeds {limit}: {cap:?}; request less")));
        }
        let send_cq = Some(self.completion_queue(verb, &self.send_cq, "send")?);
        let recv_cq = match self.recv_cq {
            None if self.is_xrc_send() => None,
            _ => Some(self.completion_queue(verb, &self.recv_cq, "recv")?),
        };
        let srq = self.shared_receive_queue(verb)?;
        Ok(Parents {
            send_cq,
            recv_cq,
            srq,
            pd: Some(Arc::clone(&self.pd)),
            kept: self.kept.clone(),
            ..Parents::default()
        })
    }

    /// Checks the shared receive queue, if one is set. It must belong to this device, and its type must be usable with
    /// queue pairs.
    fn shared_receive_queue(&self, verb: &'static str) -> Result<Option<Arc<SharedReceiveQueueCore>>, VerbError> {
        let Some(srq) = &self.srq else { return Ok(None) };
        if srq.context().raw() != self.pd.device_context().raw() {
            return Err(VerbError::invalid(
                verb,
                "the shared receive queue given to setup_srq belongs to another device context than the domain; \
                build both from one",
            ));
        }
        if srq.srq_type() == SharedReceiveQueueType::ReliableConnectionExtended {
            return Err(VerbError::invalid(
                verb,
                "the queue given to setup_srq is an XRC queue, which senders name by its number; omit setup_srq",
            ));
        }
        if self.is_xrc_send() {
            return Err(VerbError::invalid(
                verb,
                "the initiator of an XRC connection receives nothing; omit setup_srq",
            ));
        }
        Ok(Some(Arc::clone(srq)))
    }

    /// Checks the parents of a queue pair that has no queues to which a program can post.
    pub(super) fn target_parents(&self, verb: &'static str) -> Result<Parents, VerbError> {
        self.check_type(verb)?;
        let recv_cq = self.completion_queue(verb, &self.recv_cq, "recv")?;
        let send_cq = match self.send_cq {
            None => Arc::clone(&recv_cq),
            _ => self.completion_queue(verb, &self.send_cq, "send")?,
        };
        let (send_cq, recv_cq) = (Some(send_cq), Some(recv_cq));
        let srq = self.shared_receive_queue(verb)?;
        let pd = Some(Arc::clone(&self.pd));
        Ok(Parents { send_cq, recv_cq, srq, pd, kept: self.kept.clone(), ..Parents::default() })
    }

    /// Checks that a completion queue belongs to this device.
    fn completion_queue(
        &self,
        verb: &'static str,
        queue: &Option<Arc<CompletionQueueCore>>,
        which: &str,
    ) -> Result<Arc<CompletionQueueCore>, VerbError> {
        match queue {
            None => Err(VerbError::invalid(verb, format!("no completion queue is set; call setup_{which}_cq"))),
            Some(queue) if queue.context().raw() != self.pd.device_context().raw() => Err(VerbError::invalid(
                verb,
                format!(
                    "the completion queue given to setup_{which}_cq belongs to another device context than the \
                    domain; build both from one"
                ),
            )),
            Some(queue) => Ok(Arc::clone(queue)),
        }
    }

    /// Checks that queue pairs of this type accept the service's requests.
    fn check_type(&self, verb: &'static str) -> Result<(), VerbError> {
        if self.types.contains(&self.qp_type) {
            return Ok(());
        }
        let instead = match self.qp_type {
            QueuePairType::UnreliableDatagram => "ProtectionDomain::create_ud_qp_builder",
            QueuePairType::RawPacket => "ProtectionDomain::create_raw_packet_qp_builder",
            QueuePairType::ReliableConnectionExtendedSend => "ProtectionDomain::create_xrc_send_qp_builder",
            QueuePairType::ReliableConnectionExtendedRecv => "XrcDomain::create_recv_qp",
            _ => "the builder of its vendor's module",
        };
        Err(VerbError::invalid(
            verb,
            format!(
                "this builder makes queue pairs of the types {:?}; for {:?} use {instead}",
                self.types, self.qp_type
            ),
        ))
    }
}
