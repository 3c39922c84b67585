//! Forwarding a call with all its arguments, whose types are unknown, in a few instructions of each processor.
//!
//! The entry of a name loads its index into a register that no argument uses. The common code saves all argument
//! registers, looks up the target, restores them, and jumps there.

use core::arch::global_asm;

/// Defines the entry of a name.
#[cfg(target_arch = "x86_64")]
macro_rules! entry {
    ($name:literal, $index:expr) => {
        core::arch::global_asm!(
            concat!(".globl ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ":"),
            "endbr64",
            "mov r11d, {index}",
            "jmp {jump}",
            concat!(".size ", $name, ", . - ", $name),
            index = const $index,
            jump = sym $crate::passed::jump::rdma_mummy_jump,
        );
    };
}

/// Defines the entry of a name.
#[cfg(target_arch = "aarch64")]
macro_rules! entry {
    ($name:literal, $index:expr) => {
        core::arch::global_asm!(
            concat!(".globl ", $name),
            concat!(".type ", $name, ", %function"),
            concat!($name, ":"),
            "bti c",
            "mov w16, {index}",
            "b {jump}",
            concat!(".size ", $name, ", . - ", $name),
            index = const $index,
            jump = sym $crate::passed::jump::rdma_mummy_jump,
        );
    };
}

pub(crate) use entry;

unsafe extern "C" {
    /// Jumps to the target that [`rdma_mummy_target`](super::rdma_mummy_target) returns. Not callable: its input is in
    /// registers outside the calling convention.
    pub(crate) fn rdma_mummy_jump();
}

// The System V ABI: six integer registers, eight vector registers, and al, the number of vector registers that a call
// with `...` uses. At the entry the return address offsets the stack from a multiple of 16; one more word aligns it.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".globl rdma_mummy_jump",
    ".hidden rdma_mummy_jump",
    ".type rdma_mummy_jump, @function",
    "rdma_mummy_jump:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "sub rsp, 192",
    "mov [rsp], rdi",
    "mov [rsp + 8], rsi",
    "mov [rsp + 16], rdx",
    "mov [rsp + 24], rcx",
    "mov [rsp + 32], r8",
    "mov [rsp + 40], r9",
    "mov [rsp + 48], rax",
    "movups [rsp + 64], xmm0",
    "movups [rsp + 80], xmm1",
    "movups [rsp + 96], xmm2",
    "movups [rsp + 112], xmm3",
    "movups [rsp + 128], xmm4",
    "movups [rsp + 144], xmm5",
    "movups [rsp + 160], xmm6",
    "movups [rsp + 176], xmm7",
    "mov edi, r11d",
    "call {target}",
    "mov r11, rax",
    "mov rdi, [rsp]",
    "mov rsi, [rsp + 8]",
    "mov rdx, [rsp + 16]",
    "mov rcx, [rsp + 24]",
    "mov r8, [rsp + 32]",
    "mov r9, [rsp + 40]",
    "mov rax, [rsp + 48]",
    "movups xmm0, [rsp + 64]",
    "movups xmm1, [rsp + 80]",
    "movups xmm2, [rsp + 96]",
    "movups xmm3, [rsp + 112]",
    "movups xmm4, [rsp + 128]",
    "movups xmm5, [rsp + 144]",
    "movups xmm6, [rsp + 160]",
    "movups xmm7, [rsp + 176]",
    "leave",
    ".cfi_def_cfa rsp, 8",
    "jmp r11",
    ".cfi_endproc",
    ".size rdma_mummy_jump, . - rdma_mummy_jump",
    target = sym super::rdma_mummy_target,
);

// AAPCS64: eight integer registers, the address of a large result, eight vector registers, the return address in x30.
#[cfg(target_arch = "aarch64")]
global_asm!(
    ".globl rdma_mummy_jump",
    ".hidden rdma_mummy_jump",
    ".type rdma_mummy_jump, %function",
    "rdma_mummy_jump:",
    ".cfi_startproc",
    "stp x29, x30, [sp, #-224]!",
    ".cfi_def_cfa_offset 224",
    ".cfi_offset x29, -224",
    ".cfi_offset x30, -216",
    "mov x29, sp",
    "stp x0, x1, [sp, #16]",
    "stp x2, x3, [sp, #32]",
    "stp x4, x5, [sp, #48]",
    "stp x6, x7, [sp, #64]",
    "str x8, [sp, #80]",
    "stp q0, q1, [sp, #96]",
    "stp q2, q3, [sp, #128]",
    "stp q4, q5, [sp, #160]",
    "stp q6, q7, [sp, #192]",
    "mov w0, w16",
    "bl {target}",
    "mov x16, x0",
    "ldp x0, x1, [sp, #16]",
    "ldp x2, x3, [sp, #32]",
    "ldp x4, x5, [sp, #48]",
    "ldp x6, x7, [sp, #64]",
    "ldr x8, [sp, #80]",
    "ldp q0, q1, [sp, #96]",
    "ldp q2, q3, [sp, #128]",
    "ldp q4, q5, [sp, #160]",
    "ldp q6, q7, [sp, #192]",
    "ldp x29, x30, [sp], #224",
    ".cfi_def_cfa sp, 0",
    "br x16",
    ".cfi_endproc",
    ".size rdma_mummy_jump, . - rdma_mummy_jump",
    target = sym super::rdma_mummy_target,
);
