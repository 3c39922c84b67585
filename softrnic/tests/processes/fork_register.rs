//! Tests a fork during the registration of devices. A process registers devices only once, so each round runs in a
//! child.

use std::sync::Barrier;
use std::thread;

use crate::child::{forked, is_alone};

#[test]
fn child_can_register_devices_forked_during_a_registration() {
    // Another test may have registered devices.
    if !is_alone("fork_register::child_can_register_devices_forked_during_a_registration") {
        return;
    }
    // The first call installs the fork handlers. Forks that begin before this are not tested here.
    drop(rdma_mummy_sys::load::gate::hold());
    let statuses = [(); 200].map(|()| {
        forked(|| {
            let barrier = Barrier::new(2);
            thread::scope(|scope| {
                scope.spawn(|| {
                    barrier.wait();
                    softrnic::register().expect("there is a device");
                });
                barrier.wait();
                for _ in 0..3 {
                    assert_eq!(forked(|| softrnic::register().expect("there is a device")), 0);
                }
            });
        })
    });
    assert_eq!(statuses, [0; 200]);
}
