//! Shared receive queues: creation, changes, queries, posting, destruction. A queue holds the requested number of
//! receives, and with tag matching as many tags.

use std::collections::{BTreeSet, VecDeque};

use libc::c_int;
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::{ibv_ops_wr_opcode as operation, ibv_srq_attr_mask as has};

use super::async_events;
use super::calls::{Call, Completion, Posted};
use super::completion::complete;
use super::device::state_of;
use super::receives::{each, each_receive};
use super::state::Inner;
use super::stub::{arguments, endings, stubs};

/// A shared receive queue.
pub(super) struct Shared {
    attr: ffi::ibv_srq_attr,
    pub(super) receives: VecDeque<Posted>,
    number: u32,
    cq: usize,
    max_num_tags: u32,
    tags: BTreeSet<u32>,
}

stubs! {
    fn ibv_create_srq(pd: *mut ffi::ibv_pd, init: *mut ffi::ibv_srq_init_attr) -> *mut ffi::ibv_srq
        [; ..arguments(&(*init).attr)] |inner|
    {
        let init = &mut *init;
        set_up(&mut inner, (pd, init.srq_context), &mut init.attr, 0, &[pd.addr()], 0)
    }

    fn create_srq_ex(context: *mut ffi::ibv_context, init: *mut ffi::ibv_srq_init_attr_ex) -> *mut ffi::ibv_srq
        [
            ; @init: comp_mask, srq_type, xrcd, cq; max_num_tags = (*init).tm_cap.max_num_tags,
            max_ops = (*init).tm_cap.max_ops; ..arguments(&(*init).attr)
        ] |inner|
    {
        let init = &mut *init;
        let mut parents = vec![init.pd.addr()];
        for (parent, of) in [
            (init.cq.addr(), init.cq.as_ref().map(|cq| cq.context)),
            (init.xrcd.addr(), init.xrcd.as_ref().map(|xrcd| xrcd.context)),
        ] {
            if let Some(of) = of {
                parents.push(parent);
                if of != context {
                    inner.violation("a shared receive queue was created with an object of another context");
                }
            }
        }
        let cq = init.cq.addr();
        set_up(&mut inner, (init.pd, init.srq_context), &mut init.attr, cq, &parents, init.tm_cap.max_num_tags)
    }

    fn ibv_modify_srq(srq: *mut ffi::ibv_srq, attr: *mut ffi::ibv_srq_attr, mask: c_int) -> c_int
        [mask; @attr: max_wr, srq_limit] |inner|
    {
        let most = inner.facts.device.orig_attr.max_srq_wr as u32;
        let Some(shared) = inner.shared.get_mut(&srq.addr()) else { return libc::EINVAL };
        let asked = |flag: has| mask as u32 & flag.0 != 0;
        let max_wr = if asked(has::IBV_SRQ_MAX_WR) { (*attr).max_wr } else { shared.attr.max_wr };
        let limit = if asked(has::IBV_SRQ_LIMIT) { (*attr).srq_limit } else { shared.attr.srq_limit };
        if max_wr > most || shared.receives.len() > max_wr as usize || limit > max_wr {
            return inner.refuse("modify_srq", libc::EINVAL);
        }
        (shared.attr.max_wr, shared.attr.srq_limit) = (max_wr, limit);
        0
    }

    fn ibv_query_srq(srq: *mut ffi::ibv_srq, attr: *mut ffi::ibv_srq_attr) -> c_int [] |inner| {
        let Some(found) = inner.shared.get(&srq.addr()).map(|shared| shared.attr) else { return libc::EINVAL };
        inner.fill("query_srq", attr, |_facts| found)
    }

    fn get_srq_num(srq: *mut ffi::ibv_srq, number: *mut u32) -> c_int [] |inner| {
        *number = inner.shared.get(&srq.addr()).map_or(0, |shared| shared.number);
        inner.output("get_srq_num", number);
        0
    }
}

endings! {
    ibv_destroy_srq(ffi::ibv_srq), |context, srq| {
        state_of(context).lock().shared.remove(&srq.addr());
        async_events::destroyed(state_of(context), srq.addr());
    };
}

fn arguments(attr: &ffi::ibv_srq_attr) -> [(&'static str, u64); 3] {
    arguments!(; @attr: max_wr, max_sge, srq_limit)
}

/// Creates a queue, and fills in its attributes.
///
/// # Safety
///
/// The domain is alive.
unsafe fn set_up(
    inner: &mut Inner,
    (pd, srq_context): (*mut ffi::ibv_pd, *mut libc::c_void),
    attr: &mut ffi::ibv_srq_attr,
    cq: usize,
    parents: &[usize],
    max_num_tags: u32,
) -> *mut ffi::ibv_srq {
    if let Some((max_wr, max_sge)) = inner.facts.srq {
        (attr.max_wr, attr.max_sge) = (max_wr, max_sge);
    }
    // SAFETY: the domain is alive.
    let srq = inner.create::<ffi::ibv_srq>(unsafe { (*pd).context }, parents);
    // SAFETY: the queue is new.
    unsafe { ((*srq).srq_context, (*srq).pd, (*srq).handle) = (srq_context, pd, inner.handle()) };
    let number = inner.handle();
    let room = attr.max_wr.min(1024) as usize;
    let receives = VecDeque::with_capacity(room);
    inner.shared.insert(srq.addr(), Shared { attr: *attr, receives, number, cq, max_num_tags, tags: BTreeSet::new() });
    // SAFETY: a struct of integers.
    unsafe { inner.output("a shared receive queue: attr", attr) };
    srq
}

pub(super) unsafe extern "C" fn post_srq_recv(
    srq: *mut ffi::ibv_srq,
    wr: *mut ffi::ibv_recv_wr,
    bad_wr: *mut *mut ffi::ibv_recv_wr,
) -> c_int {
    // SAFETY: objects are never freed; the requests form a list that ends, with their entries, and `bad_wr` can be
    // written.
    unsafe {
        let state = state_of((*srq).context);
        let call = state.enter("post_srq_recv", &[("srq", srq.addr() as u64)]);
        each_receive(call, srq.addr(), state.is_quiet(), wr, bad_wr, |inner, posted, entries| {
            let Some(shared) = inner.shared.get_mut(&srq.addr()) else { return Err(libc::EINVAL) };
            if entries > shared.attr.max_sge as usize {
                return Err(libc::EINVAL);
            }
            if shared.receives.len() >= shared.attr.max_wr as usize {
                return Err(libc::ENOMEM);
            }
            shared.receives.push_back(posted.clone());
            Ok(())
        })
    }
}

pub(super) unsafe extern "C" fn post_srq_ops(
    srq: *mut ffi::ibv_srq,
    wr: *mut ffi::ibv_ops_wr,
    bad_wr: *mut *mut ffi::ibv_ops_wr,
) -> c_int {
    // SAFETY: objects are never freed; the operations form a list that ends, with their entries, and `bad_wr` can be
    // written.
    unsafe {
        let call = state_of((*srq).context).enter("post_srq_ops", &[("srq", srq.addr() as u64)]);
        each(call, srq.addr(), wr, bad_wr, |inner, request| operate(inner, srq, request))
    }
}

/// Executes an operation on the list of tags.
///
/// # Safety
///
/// The queue is alive, and the entries of the operation can be read.
unsafe fn operate(inner: &mut Inner, srq: *mut ffi::ibv_srq, request: &mut ffi::ibv_ops_wr) -> Result<(), c_int> {
    let add = &request.tm.add;
    // SAFETY: guaranteed by the caller. The first entry is read even if there is none, as in drivers.
    let first = unsafe { &*add.sg_list };
    let (tm, first): (*const _, *const _) = (&raw const request.tm, first);
    // SAFETY: both are references.
    let arguments = unsafe {
        arguments!(
            ; @request: wr_id, opcode, flags; @tm: unexpected_cnt, handle; @add: recv_wr_id, tag, mask, num_sge;
            @first: addr, length, lkey
        )
    };
    let arguments = arguments.to_vec();
    inner.calls.push(Call { verb: "tag_operation", arguments, failed: None });
    let Some(shared) = inner.shared.get_mut(&srq.addr()) else { return Err(libc::EINVAL) };
    if shared.max_num_tags == 0 {
        inner.violation("an operation on tags reached a queue without tag matching");
        return Err(libc::EINVAL);
    }
    let opcode = match request.opcode {
        operation::IBV_WR_TAG_ADD => {
            let free = (0..shared.max_num_tags).find(|tag| !shared.tags.contains(tag)).ok_or(libc::ENOMEM)?;
            shared.tags.insert(free);
            request.tm.handle = free;
            ffi::ibv_wc_opcode::IBV_WC_TM_ADD
        }
        operation::IBV_WR_TAG_DEL => {
            if request.tm.handle >= shared.max_num_tags {
                inner.violation("a tag is outside the list");
                return Err(libc::EINVAL);
            }
            if !shared.tags.remove(&request.tm.handle) {
                return Err(libc::ENOENT);
            }
            ffi::ibv_wc_opcode::IBV_WC_TM_DEL
        }
        _ => ffi::ibv_wc_opcode::IBV_WC_TM_SYNC,
    };
    let cq = shared.cq;
    if request.flags as u32 & ffi::ibv_ops_flags::IBV_OPS_SIGNALED.0 != 0 {
        complete(inner, cq, Completion { wr_id: request.wr_id, opcode: opcode.0, ..Completion::default() });
    }
    Ok(())
}
