//! Tests with memory of a real GPU, which is registered by its address. If there is no GPU, the tests print that they
//! did not run. If `SOFTRNIC_TEST_CUDA=1` is set, they fail instead.

#[path = "../common/mod.rs"]
mod common;

use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::{io, ptr};

use common::{ACCESS, Setup, Side, close, open, pair};
use rdma_cuda::Cuda;
use rdma_mummy_sys::*;

/// A region in the domain of a side. Its address may be of any kind.
struct Region {
    mr: *mut ibv_mr,
    start: u64,
}

impl Region {
    fn new(side: &Side, start: u64, length: usize) -> Self {
        let mr = register(side, start, length);
        assert!(!mr.is_null(), "{}", io::Error::last_os_error());
        Self { mr, start }
    }

    fn piece(&self, offset: usize, length: usize) -> ibv_sge {
        // SAFETY: the region is alive.
        let lkey = unsafe { (*self.mr).lkey };
        ibv_sge { addr: self.start + offset as u64, length: length as u32, lkey }
    }

    fn at(&self, offset: usize) -> ibv_send_wr__bindgen_ty_2__bindgen_ty_1 {
        // SAFETY: the region is alive.
        let rkey = unsafe { (*self.mr).rkey };
        ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr: self.start + offset as u64, rkey }
    }

    fn end(self) {
        // SAFETY: the region is no longer used.
        assert_eq!(unsafe { ibv_dereg_mr(self.mr) }, 0);
    }
}

fn register(side: &Side, start: u64, length: usize) -> *mut ibv_mr {
    let address = ptr::with_exposed_provenance_mut(start as usize);
    // SAFETY: the domain is alive. The registration checks the memory, which exists as long as the test uses it.
    unsafe { ibv_reg_mr(side.pd, address, length, ACCESS as c_int) }
}

fn write(left: &Side, wr_id: u64, from: ibv_sge, to: ibv_send_wr__bindgen_ty_2__bindgen_ty_1) {
    left.send(ibv_wr_opcode::IBV_WR_RDMA_WRITE, wr_id, &mut [from], |wr| wr.wr.rdma = to);
}

fn read(left: &Side, wr_id: u64, to: ibv_sge, from: ibv_send_wr__bindgen_ty_2__bindgen_ty_1) {
    left.send(ibv_wr_opcode::IBV_WR_RDMA_READ, wr_id, &mut [to], |wr| wr.wr.rdma = from);
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 31 + index / 251) as u8).collect()
}

#[test]
fn every_operation_reaches_gpu_memory() {
    const LENGTH: usize = 3 << 20;
    let Some(cuda) = Cuda::open() else { return };
    let sides = pair(open(c"soft0"), Setup::default());
    let [left, right] = &sides;
    let (ours, theirs) = (cuda.allocate(LENGTH), cuda.allocate(LENGTH));
    let (from, to) = (Region::new(left, ours, LENGTH), Region::new(right, theirs, LENGTH));
    let data = pattern(LENGTH);
    cuda.set(ours, &data);

    write(left, 1, from.piece(0, LENGTH), to.at(0));
    left.done(1);
    assert!(cuda.get(theirs, LENGTH) == data);
    read(left, 2, left.piece(3, 1001), to.at(7));
    left.done(2);
    assert_eq!(left.buffer[3..1004], data[7..1008]);
    write(left, 3, left.piece(3, 1001), to.at(5000));
    left.done(3);
    assert_eq!(cuda.get(theirs + 5000, 1001), data[7..1008]);

    // These lists contain both GPU memory and host memory.
    right.receive(4, &mut [right.piece(0, 10), to.piece(100, 90)]);
    left.send(ibv_wr_opcode::IBV_WR_SEND, 5, &mut [from.piece(7, 60), left.piece(3, 40)], |_| {});
    left.done(5);
    assert_eq!(right.done(4).byte_len, 100);
    assert_eq!(right.buffer[..10], data[7..17]);
    assert_eq!(cuda.get(theirs + 100, 90), [&data[17..67], &data[7..47]].concat());

    // This request sends inline data.
    right.receive(6, &mut [to.piece(0, 64)]);
    left.send(ibv_wr_opcode::IBV_WR_SEND, 7, &mut [left.piece(3, 21)], |wr| {
        wr.send_flags |= ibv_send_flags::IBV_SEND_INLINE.0;
    });
    left.done(7);
    right.done(6);
    assert_eq!(cuda.get(theirs, 21), data[7..28]);

    // These requests are atomics.
    cuda.set(theirs, &40u64.to_ne_bytes());
    left.send(ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD, 8, &mut [from.piece(0, 8)], |wr| {
        let ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey } = to.at(0);
        wr.wr.atomic = ibv_send_wr__bindgen_ty_2__bindgen_ty_2 { remote_addr, compare_add: 2, swap: 0, rkey };
    });
    left.done(8);
    assert_eq!((cuda.get(theirs, 8), cuda.get(ours, 8)), (42u64.to_ne_bytes().into(), 40u64.to_ne_bytes().into()));

    from.end();
    to.end();
    cuda.free(ours);
    cuda.free(theirs);
    close(sides);
}

#[test]
fn overlapping_memory_of_an_allocation_is_moved() {
    const LENGTH: usize = 200_000;
    let Some(cuda) = Cuda::open() else { return };
    let sides = pair(open(c"soft0"), Setup::default());
    let [left, right] = &sides;
    let memory = cuda.allocate(LENGTH + 4096);
    let (from, to) = (Region::new(left, memory, LENGTH + 4096), Region::new(right, memory, LENGTH + 4096));
    for (source, target) in [(0, 4096), (4096, 0), (0, 1), (1, 0), (0, 0)] {
        let mut expected = pattern(LENGTH + 4096);
        cuda.set(memory, &expected);
        write(left, 1, from.piece(source, LENGTH), to.at(target));
        left.done(1);
        expected.copy_within(source..source + LENGTH, target);
        assert!(cuda.get(memory, LENGTH + 4096) == expected, "{source} {target}");
    }
    from.end();
    to.end();
    cuda.free(memory);
    close(sides);
}

#[test]
fn region_beyond_its_allocation_is_refused() {
    let Some(cuda) = Cuda::open() else { return };
    let sides = pair(open(c"soft0"), Setup::default());
    let memory = cuda.allocate(4 << 20);
    assert!(register(&sides[0], memory, (4 << 20) + 1).is_null());
    assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EFAULT));
    assert!(register(&sides[0], memory + 4096, 4 << 20).is_null());
    Region::new(&sides[0], memory + (4 << 20) - 1, 1).end();
    cuda.free(memory);
    close(sides);
}

#[test]
fn dma_buffer_of_a_gpu_is_unsupported() {
    const LENGTH: usize = 2 << 20;
    let Some(cuda) = Cuda::open() else { return };
    let sides = pair(open(c"soft0"), Setup::default());
    let memory = cuda.allocate(LENGTH);
    if let Some(fd) = cuda.export(memory, LENGTH) {
        let access = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 as c_int;
        // SAFETY: the domain is alive.
        let mr = unsafe { ibv_reg_dmabuf_mr(sides[0].pd, 0, LENGTH, memory, fd.as_raw_fd(), access) };
        assert!(mr.is_null());
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EOPNOTSUPP));
    }
    cuda.free(memory);
    close(sides);
}

#[test]
fn thread_keeps_its_context_and_requires_none() {
    let Some(cuda) = Cuda::open() else { return };
    let sides = pair(open(c"soft0"), Setup::default());
    let [left, right] = &sides;
    let memory = cuda.allocate(4096);
    let other = cuda.new_context();
    for context in [cuda.current(), Some(other), None] {
        cuda.make_current(context);
        let before = cuda.current();
        let region = Region::new(right, memory, 4096);
        write(left, 1, left.piece(0, 4096), region.at(0));
        left.done(1);
        read(left, 2, left.piece(0, 4096), region.at(0));
        left.done(2);
        assert_eq!(cuda.current(), before);
        region.end();
    }
    cuda.destroy_context(other);
    Cuda::open();
    cuda.free(memory);
    close(sides);
}

#[test]
fn memory_of_two_contexts_is_copied_and_a_destroyed_context_fails() {
    let Some(cuda) = Cuda::open() else { return };
    let sides = pair(open(c"soft0"), Setup::default());
    let [left, right] = &sides;
    let (own, ours) = (cuda.current(), cuda.allocate(70_000));
    let other = cuda.new_context();
    cuda.make_current(Some(other));
    let theirs = cuda.allocate(70_000);
    cuda.make_current(own);
    let (from, to) = (Region::new(left, ours, 70_000), Region::new(right, theirs, 70_000));
    let data = pattern(70_000);
    cuda.set(ours, &data);
    write(left, 1, from.piece(0, 70_000), to.at(0));
    left.done(1);
    cuda.make_current(Some(other));
    assert!(cuda.get(theirs, 70_000) == data);
    cuda.destroy_context(other);
    cuda.make_current(own);
    write(left, 2, from.piece(0, 64), to.at(0));
    assert_eq!(left.wait().status, ibv_wc_status::IBV_WC_REM_OP_ERR);
    assert_eq!(cuda.current(), own);
    from.end();
    to.end();
    cuda.free(ours);
    close(sides);
}

#[test]
fn freed_memory_is_an_error_of_its_side() {
    let Some(cuda) = Cuda::open() else { return };
    for is_ours in [true, false] {
        let sides = pair(open(c"soft0"), Setup::default());
        let [left, right] = &sides;
        let memory = cuda.allocate(8 << 20);
        let region = Region::new(if is_ours { left } else { right }, memory, 4096);
        cuda.free(memory);
        // The new allocation may have the same address.
        let next = cuda.allocate(8 << 20);
        let (remote_addr, rkey) = (right.address(), right.rkey());
        let status = if is_ours {
            write(left, 1, region.piece(0, 64), ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey });
            ibv_wc_status::IBV_WC_LOC_PROT_ERR
        } else {
            write(left, 1, left.piece(0, 64), region.at(0));
            ibv_wc_status::IBV_WC_REM_OP_ERR
        };
        assert_eq!(left.wait().status, status);
        region.end();
        cuda.free(next);
        close(sides);
    }
}

#[test]
fn managed_and_pinned_memory_is_host_memory() {
    let Some(cuda) = Cuda::open() else { return };
    let sides = pair(open(c"soft0"), Setup::default());
    let [left, right] = &sides;
    let (managed, pinned) = (cuda.allocate_managed(4096), cuda.allocate_pinned(4096).expose_provenance() as u64);
    for memory in [managed, pinned] {
        let region = Region::new(right, memory, 4096);
        let data = pattern(100);
        cuda.set(memory + 900, &data);
        read(left, 1, left.piece(0, 100), region.at(900));
        left.done(1);
        assert_eq!(left.buffer[..100], data);
        write(left, 2, left.piece(0, 100), region.at(17));
        left.done(2);
        assert_eq!(cuda.get(memory + 17, 100), data);
        region.end();
    }
    close(sides);
}

#[test]
fn memory_without_context_is_copied() {
    let Some(cuda) = Cuda::open() else { return };
    let sides = pair(open(c"soft0"), Setup::default());
    let [left, right] = &sides;
    let (mapped, length) = cuda.allocate_mapped(4 << 20);
    let pooled = cuda.allocate_pooled(10_000).map(|memory| (memory, 10_000));
    for (memory, length) in [(mapped, length)].into_iter().chain(pooled) {
        let region = Region::new(right, memory, length);
        let data = pattern(5000);
        cuda.set(memory + 1000, &data);
        read(left, 1, left.piece(0, 5000), region.at(1000));
        left.done(1);
        assert_eq!(left.buffer[..5000], data);
        write(left, 2, left.piece(1, 4999), region.at(3));
        left.done(2);
        assert_eq!(cuda.get(memory + 3, 4999), data[1..]);
        region.end();
    }
    close(sides);
}
