//! Errors if a vendor's library is missing.

use sideway::mlx5::is_mlx5;
use sideway_tests::process::alone;
use sideway_tests::recording::{Recording, World};

#[test]
fn missing_library_error_names_the_package_to_install() {
    const NOWHERE: [(&str, &str); 2] =
        [("RDMA_MUMMY_LIBMLX5", "/nonexistent/libmlx5.so.1"), ("RDMA_MUMMY_LIBEFA", "/nonexistent/libefa.so.1")];
    if !alone("missing::missing_library_error_names_the_package_to_install", &NOWHERE) {
        return;
    }
    let world = World::on(Recording::of_system());
    assert!(!is_mlx5(&*world.context));
    let says = |error: sideway::error::VerbError, verb: &str, library: &str, variable: &str| {
        let text = error.to_string();
        let start =
            format!("{verb}: EOPNOTSUPP (Operation not supported): cannot load {library}: tried `/nonexistent/");
        assert!(text.starts_with(&start), "{text}");
        assert!(text.contains(variable), "{text}");
    };
    let mlx5 = |error, verb| says(error, verb, "libmlx5.so.1", "RDMA_MUMMY_LIBMLX5");
    mlx5(world.context.query_mlx5_device().unwrap_err(), "mlx5dv_query_device");
    mlx5(world.context.mlx5_clock_info().unwrap_err(), "mlx5dv_get_clock_info");
    mlx5(world.pd.create_dci_builder().unwrap_err(), "mlx5dv_create_qp");
    mlx5(world.pd.create_dct_builder().unwrap_err(), "mlx5dv_create_qp");
    let efa = |error, verb| says(error, verb, "libefa.so.1", "RDMA_MUMMY_LIBEFA");
    efa(world.context.query_efa_device().unwrap_err(), "efadv_query_device");
    efa(world.pd.create_srd_qp_builder().build_srd().unwrap_err(), "efadv_query_device");
    let queue = world.context.create_cq_builder().build_efa_with_source_gid();
    efa(queue.unwrap_err(), "efadv_create_cq");
    world.end();
}
