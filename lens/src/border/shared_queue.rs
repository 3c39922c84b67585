//! Shared receive queues: their records, and `ibv_post_srq_recv`.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rdma_mummy_sys::*;

use super::adopt::{context_of, shared_of};
use super::posting::{links, moment_of_receive, posted, trace_refusal};
use super::table::Keyed;
use crate::moment::{Kind, Moment};
use crate::state::{self, FAULTS, TRACE};
use crate::{faults, trace};

/// The record of a shared receive queue.
#[derive(Debug, Default)]
pub(super) struct SharedQueue {
    key: AtomicU64,
    pub(super) faults: faults::OfShared,
}

impl Keyed for SharedQueue {
    fn key(&self) -> &AtomicU64 {
        &self.key
    }
}

pub(super) unsafe extern "C" fn post_shared(
    srq: *mut ibv_srq,
    list: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the program passes a live queue, and requests that are live during the call.
    unsafe {
        let function = context_of((*srq).context).and_then(|context| context.post_shared.get());
        let Some(function) = function else { return libc::EOPNOTSUPP };
        let on = state::on();
        if on & (TRACE | FAULTS) == 0 {
            return function(srq, list, bad);
        }
        // The limits of the queue are not known: a list that is longer, or has more segments, is shown without the rest.
        let (most, one) = (AtomicU32::new(1024), AtomicU32::new(1));
        for request in links(list, &most).take_while(|_| on & TRACE != 0) {
            let moment = moment_of_receive(request, &one);
            trace::moment(Moment { kind: Kind::SharedReceive, queue: (*srq).handle, ..moment });
        }
        let shared = shared_of(srq).filter(|_| on & FAULTS != 0);
        let injected = shared.and_then(|shared| faults::refuse_shared(&shared.faults));
        let (code, refused) = match injected {
            Some(errno) => {
                *bad = list;
                (errno, list)
            }
            None => posted(list, bad, &most, |bad| function(srq, list, bad)),
        };
        if code != 0 && on & TRACE != 0 {
            let of = Moment { queue: (*srq).handle, ..Moment::default() };
            trace_refusal(of, links(refused, &most).count(), code, injected.is_some());
        }
        code
    }
}
