//! A fork waits for a thread that lists the devices of the system's library, also during the choice of the connection
//! provider. Without the wait, the child could inherit a lock of the library that no thread releases. The test replaces
//! the libraries of the system.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::load::ibverbs::{Ibverbs, IbverbsTable};
use rdma_mummy_sys::load::provider::{Provider, register};
use rdma_mummy_sys::load::rdmacm::{Rdmacm, RdmacmTable, VARIABLE};
use sideway_tests::process::alone;

static IS_IN: AtomicBool = AtomicBool::new(false);
static MAY_LEAVE: AtomicBool = AtomicBool::new(false);
static HAS_FORKED: AtomicBool = AtomicBool::new(false);

fn wait_for(flag: &AtomicBool) {
    while !flag.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(1));
    }
}

/// A device list function that takes some time.
unsafe extern "C" fn get_device_list(count: *mut c_int) -> *mut *mut sys::ibv_device {
    IS_IN.store(true, Ordering::SeqCst);
    wait_for(&MAY_LEAVE);
    // SAFETY: `count` is writable by contract.
    unsafe { *count = 0 };
    null_mut()
}

unsafe extern "C" fn free_device_list(_list: *mut *mut sys::ibv_device) {}

unsafe extern "C" fn create_event_channel() -> *mut sys::rdma_event_channel {
    null_mut()
}

#[test]
#[cfg_attr(miri, ignore = "creates processes")]
fn fork_waits_for_the_list_that_selects_the_connection_provider() {
    if !alone("loading_and_forks::fork_waits_for_the_list_that_selects_the_connection_provider", &[]) {
        return;
    }
    assert!(std::env::var_os(VARIABLE).is_none(), "{VARIABLE} is set, so no devices would be listed");
    let verbs = IbverbsTable {
        ibv_get_device_list: Some(get_device_list),
        ibv_free_device_list: Some(free_device_list),
        ..Default::default()
    };
    let connections = RdmacmTable { rdma_create_event_channel: Some(create_event_channel), ..Default::default() };
    // SAFETY: the functions do what their names say, as far as this test needs it.
    unsafe {
        assert!(Ibverbs::from_table(verbs).install().is_ok());
        assert!(Rdmacm::from_table(RdmacmTable::default()).install().is_ok());
        register(Provider::new("other", IbverbsTable::default()).with_rdmacm(connections)).unwrap();
    }
    thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: the function has no preconditions.
            assert!(unsafe { sys::rdma_create_event_channel() }.is_null());
        });
        wait_for(&IS_IN);
        scope.spawn(|| {
            // SAFETY: the child ends at once.
            unsafe {
                match libc::fork() {
                    0 => libc::_exit(0),
                    child => {
                        HAS_FORKED.store(true, Ordering::SeqCst);
                        assert_eq!(libc::waitpid(child, null_mut(), 0), child);
                    }
                }
            }
        });
        thread::sleep(Duration::from_millis(100));
        let is_early = HAS_FORKED.load(Ordering::SeqCst);
        MAY_LEAVE.store(true, Ordering::SeqCst);
        assert!(!is_early, "the process forked while the library listed its devices");
    });
    assert!(HAS_FORKED.load(Ordering::SeqCst));
}
