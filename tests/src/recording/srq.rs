//! Shared receive queues: creation, changes, queries, posting, destruction. A queue holds the requested number of
//! receives, and with tag matching as many tags.

use std::collections::{BTreeSet, VecDeque};

use libc::c_int;
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::{ibv_ops_wr_opcode as operation, ibv_srq_attr_mask as mask};

use super::async_events;
use super::calls::{Call, Completion, Kind, Posted};
use super::completion::complete;
use super::device::state_of;
use super::objects::{destroy_object, forever};
use super::post::elsewhere;
use super::receives::each_receive;
use super::script::Bad;
use super::state::Inner;

/// A shared receive queue.
pub(super) struct Shared {
    attr: ffi::ibv_srq_attr,
    pub(super) receives: VecDeque<Posted>,
    number: u32,
    cq: usize,
    max_num_tags: u32,
    tags: BTreeSet<u32>,
}

/// Sets the functions of the extended table and of the data path, unless the script omits them.
pub(super) fn fill_in(table: &mut ffi::verbs_context, has: impl Fn(&str) -> bool) {
    table.create_srq_ex = has("create_srq_ex").then_some(create_srq_ex);
    table.get_srq_num = has("get_srq_num").then_some(get_srq_num);
    table.post_srq_ops = has("post_srq_ops").then_some(post_srq_ops);
    table.context.ops.post_srq_recv = has("post_srq_recv").then_some(post_srq_recv);
}

pub(super) unsafe extern "C" fn create_srq(
    pd: *mut ffi::ibv_pd,
    init: *mut ffi::ibv_srq_init_attr,
) -> *mut ffi::ibv_srq {
    // SAFETY: the domain is one of this provider's, and the attributes can be read and written.
    unsafe {
        let (mut inner, failure) = state_of((*pd).context).enter("create_srq", &arguments(&(*init).attr));
        if let Some(failure) = failure {
            return failure.null();
        }
        let init = &mut *init;
        let parents = [pd.addr()];
        set_up(&mut inner, (pd, init.srq_context), &mut init.attr, 0, &parents, 0)
    }
}

pub(super) unsafe extern "C" fn create_srq_ex(
    context: *mut ffi::ibv_context,
    init: *mut ffi::ibv_srq_init_attr_ex,
) -> *mut ffi::ibv_srq {
    // SAFETY: the context is one of this provider's, and the attributes can be read and written.
    unsafe {
        let init = &mut *init;
        let [a, b, c] = arguments(&init.attr);
        let arguments = [
            a,
            b,
            c,
            ("comp_mask", init.comp_mask.into()),
            ("srq_type", init.srq_type.0.into()),
            ("xrcd", init.xrcd.addr() as u64),
            ("cq", init.cq.addr() as u64),
            ("max_num_tags", init.tm_cap.max_num_tags.into()),
            ("max_ops", init.tm_cap.max_ops.into()),
        ];
        let (mut inner, failure) = state_of(context).enter("create_srq_ex", &arguments);
        if let Some(failure) = failure {
            return failure.null();
        }
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
}

fn arguments(attr: &ffi::ibv_srq_attr) -> [(&'static str, u64); 3] {
    [("max_wr", attr.max_wr.into()), ("max_sge", attr.max_sge.into()), ("srq_limit", attr.srq_limit.into())]
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
    let srq = forever::<ffi::ibv_srq>();
    // SAFETY: the queue is new, and the domain is alive.
    unsafe {
        (*srq).context = (*pd).context;
        (*srq).srq_context = srq_context;
        (*srq).pd = pd;
        (*srq).handle = inner.handle();
    }
    let number = inner.handle();
    inner.made(Kind::SharedReceiveQueue, srq, parents);
    let room = attr.max_wr.min(1024) as usize;
    let receives = VecDeque::with_capacity(room);
    inner.shared.insert(srq.addr(), Shared { attr: *attr, receives, number, cq, max_num_tags, tags: BTreeSet::new() });
    // SAFETY: a struct of integers.
    unsafe { inner.output("a shared receive queue: attr", attr) };
    srq
}

pub(super) unsafe extern "C" fn destroy_srq(srq: *mut ffi::ibv_srq) -> c_int {
    // SAFETY: objects are never freed.
    unsafe {
        let context = (*srq).context;
        let code = destroy_object(context, "destroy_srq", Kind::SharedReceiveQueue, srq.addr());
        if code == 0 {
            state_of(context).lock().shared.remove(&srq.addr());
            async_events::destroyed(state_of(context), srq.addr());
        }
        code
    }
}

pub(super) unsafe extern "C" fn modify_srq(
    srq: *mut ffi::ibv_srq,
    attr: *mut ffi::ibv_srq_attr,
    attr_mask: c_int,
) -> c_int {
    // SAFETY: objects are never freed, and the attributes can be read.
    unsafe {
        let attr = *attr;
        let arguments =
            [("mask", attr_mask as u64), ("max_wr", attr.max_wr.into()), ("srq_limit", attr.srq_limit.into())];
        let (mut inner, failure) = state_of((*srq).context).enter("modify_srq", &arguments);
        if let Some(failure) = failure {
            return failure.code();
        }
        if !inner.is_live(Kind::SharedReceiveQueue, srq.addr(), "modify_srq") {
            return libc::EINVAL;
        }
        let most = inner.facts.device.orig_attr.max_srq_wr as u32;
        let Some(shared) = inner.shared.get_mut(&srq.addr()) else { return libc::EINVAL };
        let asked = |flag: mask| attr_mask as u32 & flag.0 != 0;
        let max_wr = if asked(mask::IBV_SRQ_MAX_WR) { attr.max_wr } else { shared.attr.max_wr };
        let limit = if asked(mask::IBV_SRQ_LIMIT) { attr.srq_limit } else { shared.attr.srq_limit };
        if max_wr > most || shared.receives.len() > max_wr as usize || limit > max_wr {
            inner.failed(libc::EINVAL);
            return libc::EINVAL;
        }
        (shared.attr.max_wr, shared.attr.srq_limit) = (max_wr, limit);
    }
    0
}

pub(super) unsafe extern "C" fn query_srq(srq: *mut ffi::ibv_srq, attr: *mut ffi::ibv_srq_attr) -> c_int {
    // SAFETY: objects are never freed, and the attributes can be written.
    unsafe {
        let (mut inner, failure) = state_of((*srq).context).enter("query_srq", &[]);
        if let Some(failure) = failure {
            return failure.code();
        }
        if !inner.is_live(Kind::SharedReceiveQueue, srq.addr(), "query_srq") {
            return libc::EINVAL;
        }
        if let (true, Some(shared)) = (inner.facts.fills, inner.shared.get(&srq.addr())) {
            *attr = shared.attr;
        }
        inner.output("query_srq", attr);
    }
    0
}

unsafe extern "C" fn get_srq_num(srq: *mut ffi::ibv_srq, number: *mut u32) -> c_int {
    // SAFETY: objects are never freed, and the number can be written.
    unsafe {
        let (mut inner, failure) = state_of((*srq).context).enter("get_srq_num", &[]);
        if let Some(failure) = failure {
            return failure.code();
        }
        if !inner.is_live(Kind::SharedReceiveQueue, srq.addr(), "get_srq_num") {
            return libc::EINVAL;
        }
        *number = inner.shared.get(&srq.addr()).map_or(0, |shared| shared.number);
        inner.output("get_srq_num", number);
    }
    0
}

unsafe extern "C" fn post_srq_recv(
    srq: *mut ffi::ibv_srq,
    wr: *mut ffi::ibv_recv_wr,
    bad_wr: *mut *mut ffi::ibv_recv_wr,
) -> c_int {
    // SAFETY: objects are never freed; the requests form a list that ends, with their entries, and `bad_wr` can be
    // written.
    unsafe {
        let state = state_of((*srq).context);
        let quiet = state.is_quiet();
        let (mut inner, failure) = state.enter("post_srq_recv", &[("srq", srq.addr() as u64)]);
        if !inner.is_live(Kind::SharedReceiveQueue, srq.addr(), "post_srq_recv") {
            *bad_wr = wr;
            return libc::EINVAL;
        }
        each_receive(&mut inner, quiet, failure, wr, bad_wr, |inner, posted, entries| {
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

unsafe extern "C" fn post_srq_ops(
    srq: *mut ffi::ibv_srq,
    wr: *mut ffi::ibv_ops_wr,
    bad_wr: *mut *mut ffi::ibv_ops_wr,
) -> c_int {
    // SAFETY: objects are never freed; the operations form a list that ends, with their entries, and `bad_wr` can be
    // written.
    unsafe {
        let (mut inner, failure) = state_of((*srq).context).enter("post_srq_ops", &[("srq", srq.addr() as u64)]);
        if !inner.is_live(Kind::SharedReceiveQueue, srq.addr(), "post_srq_ops") {
            *bad_wr = wr;
            return libc::EINVAL;
        }
        let refusal = failure.map(|failure| (Bad::At(0), failure)).or_else(|| inner.script.refusal.take());
        let (mut next, mut index) = (wr, 0);
        while let Some(request) = next.as_mut() {
            let scripted = match refusal {
                Some((Bad::At(at), failure)) if at == index => Some((next, failure.code())),
                Some((bad, failure)) if request.next.is_null() && !matches!(bad, Bad::At(_)) => {
                    Some((elsewhere(bad, next), failure.code()))
                }
                _ => None,
            };
            let told = refusal.filter(|_| scripted.is_some()).map(|(_, failure)| failure.errno());
            let refused = scripted.or_else(|| operate(&mut inner, srq, request).err().map(|errno| (next, errno)));
            if let Some((bad, code)) = refused {
                *bad_wr = bad;
                inner.failed(told.unwrap_or(code));
                return code;
            }
            next = request.next;
            index += 1;
        }
    }
    0
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
    let arguments = vec![
        ("wr_id", request.wr_id),
        ("opcode", request.opcode.0.into()),
        ("flags", request.flags as u64),
        ("unexpected_cnt", request.tm.unexpected_cnt.into()),
        ("handle", request.tm.handle.into()),
        ("recv_wr_id", add.recv_wr_id),
        ("tag", add.tag),
        ("mask", add.mask),
        ("num_sge", add.num_sge as u64),
        ("addr", first.addr),
        ("length", first.length.into()),
        ("lkey", first.lkey.into()),
    ];
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
