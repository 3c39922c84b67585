//! Finding libibverbs at run time: absent, late, old, from several threads, and only when needed.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::ffi::CStr;
use std::fs;
use std::io::Error;
use std::path::{Path, PathBuf};
use std::ptr::{self, null_mut};
use std::sync::Barrier;
use std::thread;

use rdma_mummy_sys as ffi;
use rdma_mummy_sys::load::ibverbs::{Ibverbs, IbverbsTable};
use rdma_mummy_sys::load::{LoadError, ibverbs, rdmacm};
use sideway_tests::process::alone;
use sideway_tests::requirements::{c_compiler, did_not_run};

const NOWHERE: &str = "/nonexistent/libibverbs.so.1";
const NOWHERE_CM: &str = "/nonexistent/librdmacm.so.1";

fn errno() -> i32 {
    Error::last_os_error().raw_os_error().unwrap()
}

/// A context without a provider, as a system's library creates: its device carries no mark.
fn system_context() -> *mut ffi::ibv_context {
    let device: *mut ffi::ibv_device = Box::leak(Box::new(zeroed()));
    let mut context: ffi::ibv_context = zeroed();
    context.device = device;
    Box::leak(Box::new(context))
}

/// A C struct of integers, pointers and optional function pointers, all zero.
fn zeroed<T>() -> T {
    // SAFETY: only used for such structs, of which zero is a value.
    unsafe { std::mem::zeroed() }
}

fn scratch(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("loading-{name}"));
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// A shared object that every process has and that has no verb: the C library.
fn object_without_verbs() -> PathBuf {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let path = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| {
        let name = path.rsplit('/').next().unwrap();
        name.starts_with("libc.so") || name.starts_with("libc-") || name.starts_with("ld-musl")
    });
    PathBuf::from(path.expect("a C library among the mapped files"))
}

#[test]
fn absent_fails_verb_by_verb_as_in_c() {
    if !alone(
        "loading::absent_fails_verb_by_verb_as_in_c",
        &[("RDMA_MUMMY_LIBIBVERBS", NOWHERE), ("RDMA_MUMMY_LIBRDMACM", NOWHERE_CM)],
    ) {
        return;
    }
    let context = system_context();
    let mut pd = ffi::ibv_pd { context, handle: 0 };
    let mut qp: ffi::ibv_qp = zeroed();
    qp.context = context;
    let mut count = 7;
    // SAFETY: the objects are alive and of no provider, so that no C function is ever called.
    unsafe {
        assert!(ffi::ibv_get_device_list(&mut count).is_null());
        assert_eq!((count, errno()), (0, libc::EOPNOTSUPP));
        // Functions that return a null pointer.
        assert!(ffi::ibv_alloc_pd(context).is_null());
        assert_eq!(errno(), libc::EOPNOTSUPP);
        // Functions that return the errno value.
        assert_eq!(ffi::ibv_query_device(context, null_mut()), libc::EOPNOTSUPP);
        assert_eq!(ffi::ibv_dealloc_pd(&mut pd), libc::EOPNOTSUPP);
        assert_eq!(ffi::ibv_modify_qp(&mut qp, null_mut(), 0), libc::EOPNOTSUPP);
        assert_eq!(ffi::ibv_fork_init(), libc::EOPNOTSUPP);
        // Functions that return -1.
        assert_eq!(ffi::ibv_query_gid(context, 1, 0, null_mut()), -1);
        assert_eq!(ffi::ibv_query_pkey(context, 1, 0, null_mut()), -1);
        assert_eq!(ffi::ibv_get_async_event(context, null_mut()), -1);
        assert_eq!(ffi::ibv_close_device(context), -1);
        assert_eq!(errno(), libc::EOPNOTSUPP);
        // Functions that return a negative count.
        let entries = ibverbs::_ibv_query_gid_table(context, null_mut(), 0, 0, 0);
        assert_eq!(entries, -(libc::EOPNOTSUPP as isize));
        // Functions that return "no".
        assert_eq!(ffi::ibv_query_qp_data_in_order(&mut qp, ffi::ibv_wr_opcode::IBV_WR_RDMA_WRITE, 0), 0);
        assert_eq!(ffi::ibv_is_fork_initialized(), ffi::ibv_fork_status::IBV_FORK_DISABLED);
        // Functions that return nothing.
        ffi::ibv_free_device_list(null_mut());
        // Later functions fail in the same way.
        assert_eq!(ffi::ibv_query_port_speed(context, 1, null_mut()), libc::EOPNOTSUPP);
        // The connection manager.
        assert!(ffi::rdma_create_event_channel().is_null());
        assert_eq!(errno(), libc::EOPNOTSUPP);
        let mut id = null_mut();
        assert_eq!(ffi::rdma_create_id(null_mut(), &mut id, null_mut(), ffi::rdma_port_space::RDMA_PS_TCP), -1);
        assert_eq!(errno(), libc::EOPNOTSUPP);
    }

    let error = ibverbs::library().unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, LoadError::Library { ref attempts, .. } if attempts.len() == 1));
    assert_eq!((error.library(), error.symbol(), error.errno()), ("libibverbs.so.1", None, libc::EOPNOTSUPP));
    for words in ["libibverbs.so.1", NOWHERE, "No such file", "RDMA_MUMMY_LIBIBVERBS"] {
        assert!(text.contains(words), "{words:?} is missing in {text:?}");
    }
    let text = rdmacm::library().unwrap_err().to_string();
    for words in ["librdmacm.so.1", NOWHERE_CM, "RDMA_MUMMY_LIBRDMACM"] {
        assert!(text.contains(words), "{words:?} is missing in {text:?}");
    }
    assert!(ibverbs::loaded().is_none());
}

#[test]
fn null_objects_are_refused() {
    // SAFETY: every object is null, so no function dereferences it.
    unsafe {
        assert!(ffi::ibv_open_device(null_mut()).is_null());
        assert_eq!(errno(), libc::EINVAL);
        assert!(ffi::ibv_get_device_name(null_mut()).is_null());
        assert!(ffi::ibv_alloc_pd(null_mut()).is_null());
        assert_eq!(ffi::ibv_dealloc_pd(null_mut()), libc::EINVAL);
        assert_eq!(ffi::ibv_dereg_mr(null_mut()), libc::EINVAL);
        assert_eq!(ffi::ibv_close_device(null_mut()), -1);
        assert_eq!(ffi::rdma_destroy_id(null_mut()), -1);
        assert_eq!(errno(), libc::EINVAL);
        ffi::ibv_free_device_list(null_mut());
        ffi::ibv_ack_async_event(null_mut());
        ffi::ibv_ack_cq_events(null_mut(), 1);
        ffi::rdma_freeaddrinfo(null_mut());
        ffi::rdma_free_devices(null_mut());
        ffi::rdma_destroy_event_channel(null_mut());
        assert!(!ffi::mlx5dv::mlx5dv_is_supported(null_mut()));
    }
}

#[test]
fn error_names_the_package_to_install() {
    // SAFETY: the file does not exist, so no code of it runs.
    let error = unsafe { Ibverbs::open_from("libno-such-verbs.so.9") }.unwrap_err();
    let text = error.to_string();
    for words in ["cannot load libibverbs.so.1", "libno-such-verbs.so.9", "Debian", "RDMA_MUMMY_LIBIBVERBS"] {
        assert!(text.contains(words), "{words:?} is missing in {text:?}");
    }
    let error = Error::from(error);
    assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
}

#[test]
fn later_attempt_succeeds() {
    let link = scratch("late").join("libibverbs.so.1");
    let _ = fs::remove_file(&link);
    if !alone("loading::later_attempt_succeeds", &[("RDMA_MUMMY_LIBIBVERBS", link.to_str().unwrap())]) {
        let _ = fs::remove_dir_all(link.parent().unwrap());
        return;
    }
    let context = system_context();
    assert!(matches!(ibverbs::library(), Err(LoadError::Library { .. })));
    // SAFETY: the library does not exist.
    assert!(unsafe { ffi::ibv_alloc_pd(context) }.is_null());

    std::os::unix::fs::symlink(object_without_verbs(), &link).unwrap();
    let library = ibverbs::library().unwrap();
    assert_eq!(library.path(), Some(object_without_verbs().canonicalize().unwrap().as_path()));
    assert!(ptr::eq(library, ibverbs::loaded().unwrap()));

    // The library has no verb at all. Each verb fails separately, and the error names it.
    let error = library.ibv_alloc_pd().unwrap_err();
    assert_eq!(error.symbol(), Some("ibv_alloc_pd"));
    let text = error.to_string();
    assert!(text.contains("ibv_alloc_pd") && text.contains(library.path().unwrap().to_str().unwrap()), "{text}");
    // SAFETY: the library has no such function.
    unsafe {
        assert!(ffi::ibv_alloc_pd(context).is_null());
        assert_eq!(errno(), libc::EOPNOTSUPP);
    }
}

#[test]
fn first_loads_from_eight_threads_are_one() {
    let link = scratch("threads").join("libibverbs.so.1");
    if !link.exists() {
        std::os::unix::fs::symlink(object_without_verbs(), &link).unwrap();
    }
    if !alone("loading::first_loads_from_eight_threads_are_one", &[("RDMA_MUMMY_LIBIBVERBS", link.to_str().unwrap())]) {
        let _ = fs::remove_dir_all(link.parent().unwrap());
        return;
    }
    let together = Barrier::new(8);
    let loaded: Vec<usize> = thread::scope(|scope| {
        let load = || {
            together.wait();
            ptr::from_ref(ibverbs::library().unwrap()).addr()
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(load)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(loaded.iter().all(|&library| library == loaded[0]), "{loaded:?}");
}

#[test]
fn nothing_is_loaded_before_the_first_verb() {
    if !alone("loading::nothing_is_loaded_before_the_first_verb", &[]) {
        return;
    }
    let mapped = |name: &str| fs::read_to_string("/proc/self/maps").unwrap().contains(name);
    let nothing = || !mapped("libibverbs") && !mapped("librdmacm") && !mapped("libmlx5") && !mapped("libefa");
    assert!(nothing());
    assert_eq!(ffi::ibv_rate_to_mbps(ffi::ibv_rate::IBV_RATE_100_GBPS), 103_125);
    // SAFETY: the result is a string that ends and stays.
    let words = unsafe { CStr::from_ptr(ffi::ibv_wc_status_str(ffi::ibv_wc_status::IBV_WC_RETRY_EXC_ERR)) };
    assert_eq!(words, c"transport retry counter exceeded");
    // SAFETY: null is rejected before a library is needed.
    assert!(unsafe { ffi::ibv_alloc_pd(null_mut()) }.is_null());
    assert!(ibverbs::loaded().is_none());
    assert!(nothing());

    match ibverbs::library() {
        Ok(_) => assert!(mapped("libibverbs")),
        Err(error) => did_not_run(&error.to_string()),
    }
}

#[test]
fn installed_table_replaces_the_library() {
    if !alone("loading::installed_table_replaces_the_library", &[("RDMA_MUMMY_LIBIBVERBS", NOWHERE)]) {
        return;
    }
    unsafe extern "C" fn alloc_pd(context: *mut ffi::ibv_context) -> *mut ffi::ibv_pd {
        Box::into_raw(Box::new(ffi::ibv_pd { context, handle: 44 }))
    }
    // SAFETY: the function behaves as its name documents.
    let library = unsafe { Ibverbs::from_table(IbverbsTable { ibv_alloc_pd: Some(alloc_pd), ..Default::default() }) };
    let library = library.install().unwrap();
    assert_eq!((library.path(), library.release()), (None, None));
    let context = system_context();
    // SAFETY: the context is alive, and the function above creates the result.
    unsafe {
        let pd = ffi::ibv_alloc_pd(context);
        assert_eq!((*pd).handle, 44);
        assert_eq!(ffi::ibv_dealloc_pd(pd), libc::EOPNOTSUPP);
        drop(Box::from_raw(pd));
    }
    let text = library.ibv_dealloc_pd().unwrap_err().to_string();
    assert!(text.contains("ibv_dealloc_pd") && text.contains("table"), "{text}");
    // SAFETY: the table has no function.
    let second = unsafe { Ibverbs::from_table(IbverbsTable::default()) };
    assert!(second.install().is_err(), "the first is in use");
}

#[test]
fn old_library_lacks_one_verb() {
    let Some(compiler) = c_compiler() else { return };
    let source = "
        struct pd { void *context; unsigned handle; };
        static struct pd the_pd;
        void *ibv_alloc_pd(void *context) { the_pd.context = context; the_pd.handle = 7; return &the_pd; }
        int ibv_dealloc_pd(void *pd) { return pd == &the_pd ? 0 : 22; }
    ";
    let directory = scratch("old");
    let object = compiler.shared_object(&directory, "old_verbs.so.1.0.17.2", source, &[]).unwrap();
    // The file name of an old rdma-core, as a distribution installs it.
    let file = directory.join("libibverbs.so.1.0.17.2");
    fs::rename(object, &file).unwrap();
    // SAFETY: the source above has no constructors.
    let library = unsafe { Ibverbs::open_from(&file) }.unwrap();
    assert_eq!(library.path(), Some(file.canonicalize().unwrap().as_path()));
    assert_eq!(library.release(), Some(17));
    assert!(library.ibv_query_ece.is_none() && library.since_v44.ibv_reg_mr_ex.is_none());
    let error = library.ibv_query_ece().unwrap_err();
    assert_eq!(error.symbol(), Some("ibv_query_ece"));
    assert!(error.to_string().contains("libibverbs.so.1.0.17.2"), "{error}");
    assert_eq!(library.ibv_reg_mr_ex().unwrap_err().symbol(), Some("ibv_reg_mr_ex"));
    let context = system_context();
    // SAFETY: the functions are those of the text above.
    unsafe {
        let pd = library.ibv_alloc_pd().unwrap()(context);
        assert_eq!(((*pd).context, (*pd).handle), (context, 7));
        assert_eq!(library.ibv_dealloc_pd().unwrap()(pd), 0);
    }
    let _ = fs::remove_dir_all(directory);
}

#[test]
fn installed_library_is_what_the_bindings_expect() {
    // Another test may have installed a table instead of the library.
    if !alone("loading::installed_library_is_what_the_bindings_expect", &[]) {
        return;
    }
    let library = match ibverbs::library() {
        Ok(library) => library,
        Err(error) => return did_not_run(&error.to_string()),
    };
    let path = library.path().unwrap();
    assert!(path.is_absolute() && path.to_str().unwrap().contains("libibverbs"), "{path:?}");
    assert!(library.release().is_some_and(|release| release >= 17), "{path:?}");
    assert!(library.ibv_create_qp.is_some() && library.ibv_get_device_list.is_some());

    // Rates are converted here without the library, with equal results.
    let (to_mbps, to_mult) = (library.ibv_rate_to_mbps().unwrap(), library.ibv_rate_to_mult().unwrap());
    let (of_mbps, of_mult) = (library.mbps_to_ibv_rate().unwrap(), library.mult_to_ibv_rate().unwrap());
    for value in 0..=24 {
        let rate = ffi::ibv_rate(value);
        // SAFETY: the functions take any value.
        unsafe {
            assert_eq!(ffi::ibv_rate_to_mbps(rate), to_mbps(rate), "{rate:?}");
            assert_eq!(ffi::ibv_rate_to_mult(rate), to_mult(rate), "{rate:?}");
            let (mbps, mult) = (to_mbps(rate), to_mult(rate));
            assert_eq!(ffi::mbps_to_ibv_rate(mbps), of_mbps(mbps), "{mbps}");
            assert_eq!(ffi::mult_to_ibv_rate(mult), of_mult(mult), "{mult}");
        }
    }
}
