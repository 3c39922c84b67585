//! Programs that use all functions of a vendor. Each call fails in turn, and each number from the vendor's library is
//! replaced by one that no header defines.

use std::error::Error;
use std::fmt::Debug;
use std::hint::black_box;

use sideway::ibverbs::address::AddressHandleAttribute;
use sideway::ibverbs::queue_pair::{PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway::mlx5::DciStreams;
use sideway_tests::recording::{Completion, Failure, Recording, Warnings, World, install_efa, install_mlx5};

type Act = fn(&World) -> Result<(), Box<dyn Error>>;

const SIGNALED: WorkRequestFlags = WorkRequestFlags::Signaled;

/// Prints a value, as a program would.
fn show(value: impl Debug) {
    black_box(format!("{value:?}"));
}

fn mlx5(world: &World) -> Result<(), Box<dyn Error>> {
    let attr = world.context.query_mlx5_device()?;
    show((&attr, attr.flags(), attr.num_lag_ports(), attr.dci_streams()));
    let clock = world.context.mlx5_clock_info()?;
    for timestamp in [0, 1, 1000, u64::MAX] {
        show(clock.timestamp_to_ns(timestamp));
    }
    let ah = world.pd.create_ah(&AddressHandleAttribute::new())?;
    let mut builder = world.pd.create_dci_builder()?;
    builder.setup_send_cq(&world.send_cq).setup_max_send_wr(4).setup_max_inline_data(16);
    let mut qp = builder.build_dci()?;
    let mut guard = qp.start_post_send();
    guard.construct_wr(1, SIGNALED).setup_send().setup_dc_addr(&ah, 0x10, 7).setup_inline_data(b"hello");
    guard.post()?;
    let streams = DciStreams { log_num_concurrent: 3, log_num_errored: 1 };
    show((&qp, builder.build_dci_with_streams(streams)?));
    let srq = world.pd.create_srq_builder().build()?;
    let mut builder = world.pd.create_dct_builder()?;
    show(builder.setup_recv_cq(&world.recv_cq).setup_srq(&srq).build_dct(7)?);
    Ok(())
}

fn efa(world: &World) -> Result<(), Box<dyn Error>> {
    let attr = world.context.query_efa_device()?;
    show((&attr, attr.device_caps(), attr.max_rdma_size()));
    let ah = world.pd.create_ah(&AddressHandleAttribute::new())?;
    show(ah.efa_ahn()?);
    let (mut cq, reader) = world.context.create_cq_builder().build_efa_with_source_gid()?;
    world.recording.complete(&cq, Completion { wr_id: 2, ..Completion::default() });
    let mut poller = cq.start_poll()?;
    while let Some(completion) = poller.next()? {
        show(reader.read(&completion));
    }
    drop(poller);
    let mut builder = world.pd.create_srd_qp_builder();
    builder.setup_send_cq(&world.send_cq).setup_recv_cq(&world.recv_cq).setup_max_inline_data(16);
    let mut qp = builder.build_srd()?;
    let mut guard = qp.start_post_send();
    guard.construct_wr(1, SIGNALED).setup_send_imm(5).setup_ud_addr(&ah, 1, 2).setup_inline_data(b"hello");
    guard.post()?;
    show(&qp);
    Ok(())
}

fn world() -> World {
    install_mlx5();
    install_efa();
    World::on(Recording::of_system())
}

const ACTS: [(&str, Act); 2] = [("mlx5", mlx5), ("efa", efa)];

/// The number of calls that can fail, and the outputs, in a run without faults.
fn whole(act: Act) -> (u32, Vec<&'static str>) {
    let world = world();
    let before = world.recording.failable();
    world.recording.outputs();
    act(&world).unwrap();
    let found = (world.recording.failable() - before, world.recording.outputs());
    world.end();
    found
}

#[test]
fn each_call_may_fail() {
    let warnings = Warnings::listen();
    for (name, act) in ACTS {
        let (calls, _) = whole(act);
        assert!(calls > 10, "{name}: {calls}");
        for failure in [Failure::documented(libc::EIO), Failure::negative(libc::EIO), Failure::minus_one(libc::EIO)] {
            for index in 0..calls {
                let world = world();
                world.recording.fail_any(index, failure);
                let result = act(&world);
                let log = world.recording.calls();
                let failed = log.iter().find(|call| call.failed == Some(libc::EIO)).unwrap().verb;
                let what = format!("{name}, call {index}, {failed}: {failure:?}");
                assert_eq!(world.recording.violations(), [""; 0], "{what}");
                let lines = warnings.take();
                if failed.starts_with("destroy") {
                    result.unwrap();
                    assert!(lines.iter().any(|line| line.contains(failed)), "{what}: {lines:?}");
                    drop(world);
                    warnings.take();
                    continue;
                }
                assert_eq!(lines, [""; 0], "{what}");
                let text = result.expect_err(&what).to_string();
                // The error may also name the vendor's verb that made the call.
                assert!(text.contains(failed) || text.contains("dv_create"), "{what}: {text}");
                world.end();
            }
        }
    }
}

#[test]
fn each_output_may_be_invalid() {
    let mut of_vendors = Vec::new();
    for (name, act) in ACTS {
        let (_, outputs) = whole(act);
        for (index, output) in (0..).zip(&outputs) {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                let world = world();
                world.recording.spoil(index, byte);
                let result = act(&world);
                let what = format!("{name}, output {index}, {output}: {byte:#x}: {result:?}");
                assert_eq!(world.recording.violations(), [""; 0], "{what}");
                world.end();
            }
        }
        of_vendors.extend(outputs.into_iter().filter(|output| output.contains("dv_")));
    }
    of_vendors.sort_unstable();
    of_vendors.dedup();
    let expected = [
        "efadv_query_ah",
        "efadv_query_device",
        "efadv_wc_read_sgid",
        "mlx5dv_get_clock_info",
        "mlx5dv_query_device: dci_streams",
        "mlx5dv_query_device: flags",
        "mlx5dv_query_device: lag",
        "mlx5dv_query_device: mask",
    ];
    assert_eq!(of_vendors, expected);
}
