//! Makes system calls fail with an errno that a test cannot cause otherwise, by a seccomp filter for the test's thread.

use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter};

/// Makes the system call fail in this thread from now on, if its argument with this index has this value.
pub(crate) fn fail(call: libc::c_long, argument: u32, value: i32, errno: i32) {
    let code = |code: u32, jt, jf, k| sock_filter { code: code as u16, jt, jf, k };
    // Offsets in `struct seccomp_data`: the number at 0, the arguments from 16 on, the lower half first.
    let low = 16 + 8 * argument + if cfg!(target_endian = "big") { 4 } else { 0 };
    let mut filter = [
        code(BPF_LD | BPF_W | BPF_ABS, 0, 0, 0),
        code(BPF_JMP | BPF_JEQ | BPF_K, 0, 3, call as u32),
        code(BPF_LD | BPF_W | BPF_ABS, 0, 0, low),
        code(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, value as u32),
        code(BPF_RET | BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        code(BPF_RET | BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the calls concern this thread alone, and the program is readable until they return.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program)
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}
