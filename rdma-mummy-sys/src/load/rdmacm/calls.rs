//! Calls that create, bind, migrate or destroy an object of the connection manager: they choose or record its provider.

use core::ffi::{c_char, c_int, c_void};

use libc::sockaddr;

use super::RdmacmTable;
use super::choice::chosen;
use crate::bindings::rdma_cma::*;
use crate::bindings::verbs::{ibv_pd, ibv_qp_init_attr};
use crate::load::failure;
use crate::load::front::front;
use crate::load::objects::{forget, forget_channel, remember, remember_channel, stamp_device};
use crate::load::provider::Registered;
use crate::load::route::{Owner, Routed, find};

/// `rdma_create_event_channel`: see `rdma_create_event_channel(3)`. This call chooses the provider of connections, see
/// [`choose`](super::choose).
///
/// # Safety
///
/// As in C: this function has no other requirements.
pub unsafe extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    front!(RdmacmTable, rdma_create_event_channel());
    let made = chosen().and_then(|owner| {
        let create = find::<RdmacmTable, _>(owner, |table| table.rdma_create_event_channel)?;
        // SAFETY: the function takes no arguments.
        let channel = unsafe { create() };
        remember(channel, owner);
        Ok(channel)
    });
    made.unwrap_or_else(failure::null)
}

/// `rdma_destroy_event_channel`: see `rdma_destroy_event_channel(3)`.
///
/// # Safety
///
/// `channel` is live, has no identifiers left, and is not used afterwards.
pub unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    front!(RdmacmTable, rdma_destroy_event_channel(channel));
    // SAFETY: the channel is not dereferenced.
    let owner = unsafe { channel.owner() };
    match find::<RdmacmTable, _>(owner, |table| table.rdma_destroy_event_channel) {
        Ok(destroy) => {
            forget(channel);
            // SAFETY: the function comes from the channel's provider, and the caller does not use the channel again.
            unsafe { destroy(channel) };
        }
        Err(code) => failure::nothing(code),
    }
}

/// `rdma_create_id`: see `rdma_create_id(3)`. Without a channel, this call chooses the provider.
///
/// # Safety
///
/// `channel` is null or live, `id` can be written, and `context` is any value.
pub unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: rdma_port_space,
) -> c_int {
    front!(RdmacmTable, rdma_create_id(channel, id, context, ps));
    // SAFETY: the channel is not dereferenced.
    let owner = if channel.is_null() { chosen() } else { Ok(unsafe { channel.owner() }) };
    make(owner, id, |table| {
        let create = table.rdma_create_id?;
        // SAFETY: the function comes from the channel's provider, and the caller upholds its contract.
        Some(move |id| unsafe { create(channel, id, context, ps) })
    })
}

/// `rdma_create_ep`: see `rdma_create_ep(3)`. Goes to the provider in this process that made `res`, else `pd`;
/// otherwise this call chooses the provider.
///
/// # Safety
///
/// As in C: each pointer is valid for as long as the manual page requires.
pub unsafe extern "C" fn rdma_create_ep(
    id: *mut *mut rdma_cm_id,
    res: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    front!(RdmacmTable, rdma_create_ep(id, res, pd, qp_init_attr));
    // SAFETY: by contract a protection domain argument is live; the list is not dereferenced.
    let owner = match unsafe { (res.owner(), pd.owner()) } {
        (Owner::Null, _) => Ok(Owner::Null),
        (Owner::Provider(registered), _) | (_, Owner::Provider(registered)) => Ok(Owner::Provider(registered)),
        _ => chosen(),
    };
    make(owner, id, |table| {
        let create = table.rdma_create_ep?;
        // SAFETY: the function comes from the provider of the other objects, and the caller upholds its contract.
        Some(move |id| unsafe { create(id, res, pd, qp_init_attr) })
    })
}

/// `rdma_get_request`: see `rdma_get_request(3)`.
///
/// # Safety
///
/// `listen` is a live listener, and `id` can be written.
pub unsafe extern "C" fn rdma_get_request(listen: *mut rdma_cm_id, id: *mut *mut rdma_cm_id) -> c_int {
    front!(RdmacmTable, rdma_get_request(listen, id));
    // SAFETY: the identifier is not dereferenced.
    let owner = unsafe { listen.owner() };
    make(Ok(owner), id, |table| {
        let get = table.rdma_get_request?;
        // SAFETY: the function comes from the identifier's provider, and the caller upholds its contract.
        Some(move |id| unsafe { get(listen, id) })
    })
}

/// Runs the function that `pick` takes from the table of `owner`, and records the provider of the identifier stored in
/// `id`.
fn make<F: FnOnce(*mut *mut rdma_cm_id) -> c_int>(
    owner: Result<Owner, c_int>,
    id: *mut *mut rdma_cm_id,
    pick: impl FnOnce(&'static RdmacmTable) -> Option<F>,
) -> c_int {
    let made = owner.and_then(|owner| {
        let create = find(owner, pick)?;
        if id.is_null() {
            return Err(libc::EINVAL);
        }
        let result = create(id);
        if result == 0 {
            // SAFETY: the call succeeded, so `id` holds an identifier that `owner` made and no other code has yet.
            unsafe {
                remember_id(*id, owner);
                stamp_device(*id, owner);
            }
        }
        Ok(result)
    });
    made.unwrap_or_else(failure::minus_one)
}

/// Records the provider of an identifier, and of the channel that was made with it.
///
/// # Safety
///
/// `id` is null, or `owner` has made it, and it is live.
unsafe fn remember_id(id: *mut rdma_cm_id, owner: Owner) {
    remember(id, owner);
    if let Owner::Provider(_) = owner {
        // SAFETY: by contract the identifier is null or live.
        unsafe { remember_channel(id) };
    }
}

/// `rdma_destroy_id`: see `rdma_destroy_id(3)`.
///
/// # Safety
///
/// `id` is live, its queue pair is destroyed, its events are acknowledged, and it is not used afterwards if this
/// succeeds.
pub unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    front!(RdmacmTable, rdma_destroy_id(id));
    // SAFETY: the identifier is not dereferenced.
    let owner = unsafe { id.owner() };
    match find::<RdmacmTable, _>(owner, |table| table.rdma_destroy_id) {
        Ok(destroy) => {
            forget(id);
            // SAFETY: the function comes from the identifier's provider, and the caller does not use the identifier
            // again.
            let result = unsafe { destroy(id) };
            if result != 0 {
                // SAFETY: the provider has not destroyed the identifier.
                unsafe { remember_id(id, owner) };
            }
            result
        }
        Err(code) => failure::minus_one(code),
    }
}

/// `rdma_destroy_ep`: see `rdma_destroy_ep(3)`.
///
/// # Safety
///
/// `id` came from `rdma_create_ep` or `rdma_get_request` and is not used afterwards.
pub unsafe extern "C" fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    front!(RdmacmTable, rdma_destroy_ep(id));
    // SAFETY: the identifier is not dereferenced.
    let owner = unsafe { id.owner() };
    match find::<RdmacmTable, _>(owner, |table| table.rdma_destroy_ep) {
        Ok(destroy) => {
            forget(id);
            // SAFETY: the function comes from the identifier's provider, and the caller does not use the identifier
            // again.
            unsafe { destroy(id) };
        }
        Err(code) => failure::nothing(code),
    }
}

/// `rdma_bind_addr`: see `rdma_bind_addr(3)`.
///
/// # Safety
///
/// `id` is live and `addr` is an address of the family that it states.
pub unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
    front!(RdmacmTable, rdma_bind_addr(id, addr));
    let pick = |table: &RdmacmTable| {
        let bind = table.rdma_bind_addr?;
        // SAFETY: the function comes from the identifier's provider, and the caller upholds its contract.
        Some(move || unsafe { bind(id, addr) })
    };
    // SAFETY: the identifier is null or live by contract.
    unsafe { bind(id, pick) }
}

/// `rdma_resolve_addr`: see `rdma_resolve_addr(3)`.
///
/// # Safety
///
/// `id` is live, `src_addr` is null or an address of the family that it states, and so is `dst_addr`, not null.
pub unsafe extern "C" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    src_addr: *mut sockaddr,
    dst_addr: *mut sockaddr,
    timeout_ms: c_int,
) -> c_int {
    front!(RdmacmTable, rdma_resolve_addr(id, src_addr, dst_addr, timeout_ms));
    let pick = |table: &RdmacmTable| {
        let resolve = table.rdma_resolve_addr?;
        // SAFETY: the function comes from the identifier's provider, and the caller upholds its contract.
        Some(move || unsafe { resolve(id, src_addr, dst_addr, timeout_ms) })
    };
    // SAFETY: the identifier is null or live by contract.
    unsafe { bind(id, pick) }
}

/// Runs the function that `pick` takes from the table of the provider of `id`, after which `id` may be bound to a
/// device.
///
/// # Safety
///
/// `id` is null or live.
unsafe fn bind<F: FnOnce() -> c_int>(
    id: *mut rdma_cm_id,
    pick: impl FnOnce(&'static RdmacmTable) -> Option<F>,
) -> c_int {
    // SAFETY: the identifier is not dereferenced.
    let owner = unsafe { id.owner() };
    match find(owner, pick) {
        Ok(call) => {
            let result = call();
            // SAFETY: the identifier is live, and `owner` is its provider.
            unsafe { stamp_device(id, owner) };
            result
        }
        Err(code) => failure::minus_one(code),
    }
}

/// `rdma_migrate_id`: see `rdma_migrate_id(3)`.
///
/// # Errors
///
/// Besides those of the manual page: -1 with `EINVAL` if channel and identifier have different providers.
///
/// # Safety
///
/// `id` is live, and `channel` is null or live.
pub unsafe extern "C" fn rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int {
    front!(RdmacmTable, rdma_migrate_id(id, channel));
    // SAFETY: `owner` dereferences neither object.
    let (owner, target) = unsafe { (id.owner(), channel.owner()) };
    let same = match (owner, target) {
        (_, Owner::Null) | (Owner::System, Owner::System) => true,
        (Owner::Provider(one), Owner::Provider(other)) => core::ptr::eq::<Registered>(one, other),
        _ => false,
    };
    if !same {
        return failure::minus_one(libc::EINVAL);
    }
    match find::<RdmacmTable, _>(owner, |table| table.rdma_migrate_id) {
        Ok(migrate) => {
            if let Owner::Provider(_) = owner {
                forget_channel(id);
            }
            // SAFETY: the function comes from the provider of both, and the caller upholds its contract.
            let result = unsafe { migrate(id, channel) };
            if let Owner::Provider(_) = owner {
                // SAFETY: the identifier is live.
                unsafe { remember_channel(id) };
            }
            result
        }
        Err(code) => failure::minus_one(code),
    }
}

/// `rdma_get_cm_event`: see `rdma_get_cm_event(3)`.
///
/// # Safety
///
/// `channel` is live, and `event` can be written.
pub unsafe extern "C" fn rdma_get_cm_event(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event) -> c_int {
    front!(RdmacmTable, rdma_get_cm_event(channel, event));
    // SAFETY: the channel is not dereferenced.
    let owner = unsafe { channel.owner() };
    match find::<RdmacmTable, _>(owner, |table| table.rdma_get_cm_event) {
        Ok(_) if event.is_null() => failure::minus_one(libc::EINVAL),
        Ok(get) => {
            // SAFETY: the function comes from the channel's provider, and the caller upholds its contract.
            let result = unsafe { get(channel, event) };
            if let (0, Owner::Provider(_)) = (result, owner) {
                // SAFETY: the call succeeded, so `event` holds an event of this provider, whose identifier is live
                // until the event is acknowledged.
                unsafe { remember_event(*event, owner) };
            }
            result
        }
        Err(code) => failure::minus_one(code),
    }
}

/// # Safety
///
/// `owner` has just reported `event`.
unsafe fn remember_event(event: *mut rdma_cm_event, owner: Owner) {
    if event.is_null() {
        return;
    }
    remember(event, owner);
    // SAFETY: the event is live, and so is its identifier.
    unsafe {
        // Only a connect request has an identifier that the program has not seen. Adding any other would be wrong:
        // another thread may be destroying that identifier, and have removed it from the map.
        if (*event).event == rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST {
            remember_id((*event).id, owner);
        }
        stamp_device((*event).id, owner);
    }
}

/// Returns the provider of an event. If the event was not reported by [`rdma_get_cm_event`], a synchronous call has
/// stored it in its identifier, so it has the provider of this identifier.
///
/// # Safety
///
/// `event` is null or live.
unsafe fn owner_of_event(event: *mut rdma_cm_event) -> Owner {
    // SAFETY: the event is not dereferenced.
    match unsafe { event.owner() } {
        // SAFETY: by contract the event is live; the identifier is not dereferenced.
        Owner::System => unsafe { (*event).id.owner() },
        owner => owner,
    }
}

/// `rdma_ack_cm_event`: see `rdma_ack_cm_event(3)`.
///
/// # Safety
///
/// `event` came from `rdma_get_cm_event` and is not used afterwards.
pub unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    front!(RdmacmTable, rdma_ack_cm_event(event));
    // SAFETY: the event is live.
    let owner = unsafe { owner_of_event(event) };
    match find::<RdmacmTable, _>(owner, |table| table.rdma_ack_cm_event) {
        Ok(acknowledge) => {
            forget(event);
            // SAFETY: the function comes from the event's provider, and the caller does not use the event again.
            let result = unsafe { acknowledge(event) };
            if result != 0 {
                remember(event, owner);
            }
            result
        }
        Err(code) => failure::minus_one(code),
    }
}

/// `rdma_getaddrinfo`: see `rdma_getaddrinfo(3)`. The provider of the list is chosen as for a channel.
///
/// # Safety
///
/// `node` and `service` are null or null-terminated strings, `hints` is null or initialised, and `res` can be written.
pub unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    res: *mut *mut rdma_addrinfo,
) -> c_int {
    front!(RdmacmTable, rdma_getaddrinfo(node, service, hints, res));
    let made = chosen().and_then(|owner| {
        let get = find::<RdmacmTable, _>(owner, |table| table.rdma_getaddrinfo)?;
        if res.is_null() {
            return Err(libc::EINVAL);
        }
        // SAFETY: the caller upholds the contract of the function.
        let result = unsafe { get(node, service, hints, res) };
        if result == 0 {
            // SAFETY: the call succeeded, so `res` holds a list.
            remember(unsafe { *res }, owner);
        }
        Ok(result)
    });
    made.unwrap_or_else(failure::minus_one)
}

/// `rdma_query_addrinfo` (RDMACM_1.4): see `rdma_resolve_addrinfo(3)`.
///
/// # Safety
///
/// `id` is live, and `info` can be written.
pub unsafe extern "C" fn rdma_query_addrinfo(id: *mut rdma_cm_id, info: *mut *mut rdma_addrinfo) -> c_int {
    front!(RdmacmTable, since_v44.rdma_query_addrinfo(id, info));
    // SAFETY: the identifier is not dereferenced.
    let owner = unsafe { id.owner() };
    match find::<RdmacmTable, _>(owner, |table| table.since_v44.rdma_query_addrinfo) {
        Ok(_) if info.is_null() => failure::minus_one(libc::EINVAL),
        Ok(query) => {
            // SAFETY: the function comes from the identifier's provider, and the caller upholds its contract.
            let result = unsafe { query(id, info) };
            if result == 0 {
                // SAFETY: the call succeeded, so `info` holds a list.
                remember(unsafe { *info }, owner);
            }
            result
        }
        Err(code) => failure::minus_one(code),
    }
}

/// `rdma_freeaddrinfo`: see `rdma_getaddrinfo(3)`. Null is ignored.
///
/// # Safety
///
/// `res` is null, or came from `rdma_getaddrinfo` or `rdma_query_addrinfo` and is not used afterwards.
pub unsafe extern "C" fn rdma_freeaddrinfo(res: *mut rdma_addrinfo) {
    front!(RdmacmTable, rdma_freeaddrinfo(res));
    if res.is_null() {
        return;
    }
    // SAFETY: the list is not dereferenced.
    let owner = unsafe { res.owner() };
    match find::<RdmacmTable, _>(owner, |table| table.rdma_freeaddrinfo) {
        Ok(free) => {
            forget(res);
            // SAFETY: the function comes from the list's provider, and the caller does not use the list again.
            unsafe { free(res) };
        }
        Err(code) => failure::nothing(code),
    }
}
