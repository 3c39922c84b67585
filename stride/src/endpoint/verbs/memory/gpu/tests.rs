//! Tests of GPU memory with the fake driver and softrnic's device.

use std::path::PathBuf;

use anyhow::anyhow;
use rdma_cuda::Fake;

use super::card::Allocation;
use super::list::nearest;
use super::*;
use crate::endpoint::verbs::device;
use crate::plan::SideConfig;

const ACCESS: AccessFlags = AccessFlags::LocalWrite;

fn domain() -> Arc<ProtectionDomain> {
    let config = SideConfig { device: Some("soft0".to_owned()), ..SideConfig::default() };
    device::open_one(&config, &[], |_| true).unwrap().0.alloc_pd().unwrap()
}

fn open(name: &str) -> Result<Gpu, String> {
    Gpu::open(&domain(), name, None).map_err(|error| format!("{error:#}"))
}

#[test]
fn gpu_is_found_by_index_or_pci_address() {
    let fake = Fake::load();
    for (name, index) in [("0", 0), ("1", 1), ("0000:17:00.0", 0), ("ca:00.0", 1), ("00000000:CA:00.0", 1)] {
        let gpu = open(name).unwrap();
        assert_eq!(gpu.fact().index, index, "{name}");
        // softrnic rejects the descriptor that the fake driver exports, because it is not that of a DMA buffer. The
        // memory is therefore registered by address.
        assert_eq!(gpu.registration(), Registration::PeerMemory);
    }
    assert_eq!(open("1").unwrap().fact().to_string(), "GPU 1 (Fake B, 0000:ca:00.0)");
    for name in ["2", "0000:18:00.0"] {
        let why = open(name).unwrap_err();
        assert!(why.starts_with(&format!("--use-cuda {name}: no such GPU")), "{why}");
        assert!(why.contains("choose from 0 (0000:17:00.0), 1 (0000:ca:00.0)"), "{why}");
    }
    assert!(open("gpu0").unwrap_err().contains("not a GPU's index"));
    assert_eq!(fake.live(), (0, 0));
}

#[test]
fn driver_errors_name_cause_and_remedy() {
    let fake = Fake::load();
    fake.fails(Some(("cuInit", 100)));
    let why = open("0").unwrap_err();
    assert!(why.contains("cuInit: CUDA_ERROR_NO_DEVICE (100)") && why.contains("nvidia-smi"), "{why}");
    // The driver has no name for this code.
    fake.fails(Some(("cuDevicePrimaryCtxRetain", 12345)));
    assert!(open("0").unwrap_err().contains("cuDevicePrimaryCtxRetain: error 12345"));
    fake.fails(None);
    fake.count(0);
    assert!(open("0").unwrap_err().contains("the CUDA driver reports no GPU: check `nvidia-smi`"));
    for (absent, reason) in
        [(Absent::Library, "libcuda.so.1 is missing"), (Absent::Symbol("cuInit"), "libcuda.so.1 has no cuInit")]
    {
        assert_eq!(absent.to_string(), reason);
        assert!(absent.remedy().contains("driver"));
    }
}

#[test]
fn copies_run_in_the_context_of_the_gpu() {
    let fake = Fake::load();
    fake.make_current(7);
    let gpu = open("0").unwrap();
    let mut region = gpu.region(&domain(), 100_000, ACCESS).unwrap();
    assert!(region.start().is_multiple_of(64 << 10));
    let mut bytes = [1; 100];
    region.read_at(99_900, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 100], "the memory is initially zero");
    let pattern: Vec<u8> = (0..100).collect();
    fake.calls();
    region.write_at(31, &pattern).unwrap();
    assert_eq!(fake.calls(), ["cuCtxPushCurrent", "cuMemcpyHtoD", "cuCtxPushCurrent", "cuCtxSynchronize"]);
    region.read_at(31, &mut bytes).unwrap();
    assert_eq!(bytes[..], pattern);
    for (offset, length) in [(131_072, 1), (131_000, 100), (u64::MAX, 2)] {
        assert!(region.write_at(offset, &vec![0; length]).is_err(), "{offset}");
        assert!(region.read_at(offset, &mut vec![0; length]).is_err(), "{offset}");
    }
    for name in ["cuMemcpyHtoD", "cuCtxPushCurrent", "cuCtxSynchronize"] {
        fake.fails(Some((name, 2)));
        let why = region.write_at(0, &[1]).unwrap_err().to_string();
        assert_eq!(why, format!("{name}: CUDA_ERROR_OUT_OF_MEMORY (2)"));
    }
    fake.fails(None);
    assert_eq!(fake.current(), [7], "the thread's context is restored");
    assert_eq!(fake.live(), (1, 1));
    drop((region, gpu));
    assert_eq!(fake.live(), (0, 0));
}

#[test]
fn failed_allocation_is_an_error_and_leaks_nothing() {
    let fake = Fake::load();
    let gpu = open("0").unwrap();
    for name in ["cuMemAlloc", "cuPointerSetAttribute", "cuMemsetD8"] {
        fake.fails(Some((name, 2)));
        let why = format!("{:#}", gpu.region(&domain(), 5, ACCESS).unwrap_err());
        assert!(why.contains("memory of GPU 0 (Fake A, 0000:17:00.0)"), "{why}");
        assert!(why.contains(&format!("{name}: CUDA_ERROR_OUT_OF_MEMORY (2)")), "{why}");
    }
    fake.fails(None);
    assert!(gpu.region(&domain(), usize::MAX - 5, ACCESS).is_err());
    assert_eq!(fake.live(), (0, 1));
}

#[test]
fn dma_buffer_covers_the_allocation() {
    let fake = Fake::load();
    let context = CardContext::new(Card::new(Driver::get().unwrap(), 0).unwrap()).unwrap();
    let memory = Allocation::new(&context, 70_000).unwrap();
    assert_eq!(memory.bytes(), 128 << 10);
    memory.dma_buf().unwrap();
    fake.fails(Some(("cuMemGetHandleForAddressRange", 801)));
    let why = memory.dma_buf().unwrap_err().to_string();
    assert_eq!(why, "cuMemGetHandleForAddressRange: CUDA_ERROR_NOT_SUPPORTED (801)");
    fake.fails(None);
    Fake::load_old();
    let context = CardContext::new(Card::new(Driver::get().unwrap(), 0).unwrap()).unwrap();
    let why = Allocation::new(&context, 1).unwrap().dma_buf().unwrap_err().to_string();
    assert!(why.contains("CUDA 11.7"), "{why}");
}

#[test]
fn dma_buffer_is_preferred_to_address() {
    let way = |works: &[Way]| {
        Way::first(|way| if works.contains(&way) { Ok(()) } else { Err(anyhow!("no {way:?}")) })
            .map_err(|Refusal { by_dma_buf, by_address }| format!("{}, {}", by_dma_buf.unwrap(), by_address.unwrap()))
    };
    assert_eq!(way(&[Way::DmaBuf, Way::Address]), Ok(Way::DmaBuf));
    assert_eq!(way(&[Way::Address]), Ok(Way::Address));
    assert_eq!(way(&[]), Err("no DmaBuf, no Address".to_owned()));
    for way in [Way::DmaBuf, Way::Address] {
        assert_eq!(Way::from(way.registration()), way);
    }
}

#[test]
fn requested_method_is_the_only_one_tried() {
    let fake = Fake::load();
    let open = |way| Gpu::open(&domain(), "0", Some(way)).map_err(|error| format!("{error:#}"));
    fake.calls();
    let gpu = open(GpuRegistration::Address).unwrap();
    assert_eq!(gpu.registration(), Registration::PeerMemory);
    assert!(!fake.calls().contains(&"cuMemGetHandleForAddressRange"), "no DMA buffer is requested");
    // softrnic rejects the descriptor that the fake driver exports, because it is not that of a DMA buffer. Registration
    // by address would work, but is not tried.
    let why = open(GpuRegistration::DmaBuf).unwrap_err();
    assert!(fake.calls().contains(&"cuMemGetHandleForAddressRange"));
    assert!(why.contains("soft0 cannot register memory of GPU 0") && why.contains("as a DMA buffer: "), "{why}");
    assert!(
        why.contains("leave out --gpu-registration to try the other method") && !why.contains("nvidia_peermem"),
        "{why}"
    );
    fake.fails(Some(("cuMemAlloc", 2)));
    let why = open(GpuRegistration::Address).unwrap_err();
    assert!(why.contains("by address: ") && !why.contains("DMA buffer"), "{why}");
    for way in [Way::DmaBuf, Way::Address] {
        assert_eq!(Way::only(way, |_| Ok(())).unwrap(), way);
    }
}

#[test]
fn device_without_either_method_has_both_causes() {
    let fake = Fake::load();
    let gpu = open("0").unwrap();
    let refusal = Refusal { by_dma_buf: Some(anyhow!("first")), by_address: Some(anyhow!("second")) };
    let why = refused(gpu.fact(), &domain(), &refusal).to_string();
    for part in
        ["soft0", "GPU 0 (Fake A", "first", "second", "modprobe nvidia_peermem", "Linux 5.12", "open kernel modules"]
    {
        assert!(why.contains(part), "{part}: {why}");
    }
    fake.fails(Some(("cuMemAlloc", 2)));
    let why = open("0").unwrap_err();
    assert!(why.matches("CUDA_ERROR_OUT_OF_MEMORY").count() == 2, "{why}");
}

#[test]
fn gpus_are_listed_with_name_and_address() {
    let fake = Fake::load();
    let Gpus::Some(all) = gpus() else { panic!("there are two") };
    let listed: Vec<_> = all.iter().map(|gpu| (gpu.index, &*gpu.name, &*gpu.pci_address)).collect();
    assert_eq!(listed, [(0, "Fake A", "0000:17:00.0"), (1, "Fake B", "0000:ca:00.0")]);
    fake.count(0);
    assert!(matches!(gpus(), Gpus::None(why) if why == "the CUDA driver reports no GPU"));
}

#[test]
fn nearest_gpus_share_most_of_the_pci_path() {
    let path = |text: &str| PathBuf::from(format!("/sys/devices/{text}"));
    let nic = path("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:19:00.0");
    let same_switch = path("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0");
    let same_root = path("pci0000:15/0000:15:02.0/0000:20:00.0");
    let other_root = path("pci0000:80/0000:80:01.0/0000:81:00.0");
    let find = |node, gpus: &[(&PathBuf, Option<u32>)]| {
        let gpus: Vec<_> =
            gpus.iter().zip(0..).map(|(&(path, node), index)| (index, Some(path.clone()), node)).collect();
        nearest(Some(&nic), node, &gpus).map(|near| (near.nearness, near.gpus))
    };
    let all = [(&other_root, Some(0)), (&same_root, Some(0)), (&same_switch, Some(0)), (&same_switch, Some(0))];
    assert_eq!(find(Some(0), &all), Some((Nearness::Bridges(2), vec![2, 3])));
    assert_eq!(find(None, &all[..2]), Some((Nearness::Root, vec![1])));
    assert_eq!(find(Some(0), &all[..1]), Some((Nearness::Node, vec![0])));
    assert_eq!(find(Some(1), &all[..1]), None);
    assert_eq!(find(None, &[(&other_root, None)]), None);
    // A software device has no PCI path.
    assert_eq!(nearest(None, None, &[(0, Some(same_root.clone()), Some(0))]), None);
}
