//! A fork while another thread registers the devices, for which a process has one chance: each round is a process of its own.

use std::sync::Barrier;
use std::thread;

use crate::child::{forked, is_alone};

#[test]
fn a_child_registers_what_another_thread_of_its_parent_was_registering() {
    // Another test may have registered them.
    if !is_alone("fork_register::a_child_registers_what_another_thread_of_its_parent_was_registering") {
        return;
    }
    // The first time sets up what a fork waits for; a fork that has begun before that is not looked at here.
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
