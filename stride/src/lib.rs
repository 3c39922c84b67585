//! The modules of `stride-perf`, the RDMA benchmark that is built on sideway.
//!
//! ```text
//! cli       parses the command line and makes it into a plan
//! features  the parts that a build can leave out
//! plan      what is measured, and on which devices; the same on both sides
//! control   the control channel over TCP, which carries versions, the plan, queue pair addresses and results
//! endpoint  one side of a test, with its device, memory and queue pairs; uses sideway, or is a fake for tests
//! stats     the figures of a test
//! report    formats figures as tables, JSON, CSV, plots and pages, and compares them
//! mesh      tests between all pairs of many hosts: schedule, coordination, verdict
//! program   runs the commands, with the modules above
//! thread    starts threads
//! ```
//!
//! The crate `stride-run` contains the loops that measure, and everything else that runs once per message or per byte.
//! In the release profile, only that crate is optimized.
//!
//! # From an option to its files
//!
//! An option is declared once, with its help and its default. Usually this declaration is a field in a part of
//! [`plan::Plan`]; serde then passes the value to the server, to JSON and to CSV. An option that is not part of a plan,
//! or whose default depends on other options, is declared in `cli/options`.
//!
//! | options | declared in | used in |
//! |---|---|---|
//! | `--msg-size` `--all-sizes` `--min-msg-size` `--max-msg-size` `--step-factor` | `cli/options/messages.rs` | `cli/build.rs`, `plan/size.rs` |
//! | `--iters` `--duration` `--run-infinitely` `--warm-up` | `cli/options/messages.rs` | `cli/build.rs`, `plan/run_length.rs`, `../run/src/bandwidth/mod.rs`, `../run/src/latency.rs` |
//! | `--imm` `--atomic` | `cli/options/messages.rs` | `cli/build.rs`, `plan/operation.rs`, `../run/src/request.rs` |
//! | `--latency` | `cli/options/messages.rs` | `plan/operation.rs`, `../run/src/latency.rs` |
//! | `--like-perftest` | `cli/options/messages.rs` | `cli/preset.rs` |
//! | `--validate` | `plan/workload.rs` | `endpoint/verbs/contents.rs`, `../run/src/pattern.rs`, `../run/src/cas_check.rs` |
//! | `--rate-limit` `--burst-size` | `plan/workload.rs` | `../run/src/bandwidth/pace.rs` |
//! | `--gap` | `plan/workload.rs` | `../run/src/gap.rs` |
//! | `--bidirectional` `--reversed` | `cli/options/messages.rs` | `plan/workload.rs`, `endpoint/verbs/step.rs` |
//! | `--qp-count` `--threads` | `cli/options/messages.rs` | `plan/queues.rs`, `endpoint/verbs/worker_resources.rs`, `endpoint/verbs/pairs/mod.rs` |
//! | `--tx-depth` `--cq-mod` | `cli/options/messages.rs` | `plan/queues.rs`, `../run/src/qp_driver.rs`, `../run/src/bandwidth/mod.rs` |
//! | `--post-list` | `plan/queues.rs` | `../run/src/bandwidth/mod.rs` |
//! | `--rx-depth` `--recv-post-list` | `plan/queues.rs` | `../run/src/receive.rs` |
//! | `--inline` | `plan/queues.rs` | `endpoint/verbs/pairs/mod.rs` |
//! | `--events` | `plan/queues.rs` | `../run/src/wait.rs` |
//! | `--no-relaxed-ordering` `--mr-per-qp` | `plan/side_config.rs` | `endpoint/verbs/memory/mod.rs` |
//! | `--odp` | `plan/side_config.rs` | `endpoint/verbs/memory/on_demand.rs` |
//! | `--transport` | `plan/queues.rs` | `endpoint/verbs/pairs/mod.rs`, `../run/src/step/choice.rs` |
//! | `--mtu` | `plan/queues.rs` | `control/path/mod.rs` |
//! | `--qp-timeout` `--sl` `--tclass` `--flow-label` | `plan/queues.rs` | `endpoint/verbs/connect/manual.rs` |
//! | `--rdma-cm` | `plan/queues.rs` | `endpoint/verbs/connect/rdma_cm.rs` |
//! | `--device` `--ib-port` `--dualport` `--remote-device` `--remote-ib-port` | `cli/options/config.rs` | `plan/side_config.rs`, `endpoint/verbs/device.rs` |
//! | `--gid-index` `--remote-gid-index` | `cli/options/config.rs` | `plan/side_config.rs`, `control/path/gid.rs` |
//! | `--pkey-index` `--dlid` `--remote-pkey-index` `--remote-dlid` | `cli/options/config.rs` | `plan/side_config.rs`, `endpoint/verbs/connect/manual.rs` |
//! | `--use-cuda` `--gpu-registration` `--remote-use-cuda` `--remote-gpu-registration` | `cli/options/config.rs` | `plan/gpu.rs`, `endpoint/verbs/memory/gpu/mod.rs` |
//! | `--huge-pages` `--remote-huge-pages` | `cli/options/config.rs` | `endpoint/verbs/memory/mod.rs` |
//! | `--cpu` `--no-numa` `--remote-cpu` `--remote-no-numa` | `cli/options/config.rs` | `endpoint/numa.rs`, `endpoint/verbs/worker.rs` |
//! | `--interval` | `plan/workload.rs` | `endpoint/interval.rs` |
//! | `--counters` | `plan/workload.rs` | `endpoint/counters.rs` |
//! | `--port` `--ipv4` `--ipv6` `--timeout` | `cli/options/control.rs` | `control/options.rs` |
//! | `--one-off` | `cli/options/control.rs` | `program/serve.rs` |
//! | `--wait-server` `--loopback` | `cli/options/control.rs` | `program/measure.rs`, `control/loopback.rs` |
//! | `--json` `--json-stream` | `cli/options/output.rs` | `report/json.rs` |
//! | `--csv` | `cli/options/output.rs` | `report/csv/mod.rs` |
//! | `--plot` `--output` | `cli/options/output.rs`, `cli/command.rs` | `report/plot/mod.rs`, `report/page/mod.rs` |
//! | `--compare` `--threshold` | `cli/options/output.rs` | `report/compare.rs` |
//! | `--min-gbps` `--min-mpps` `--max-p99` | `cli/options/output.rs` | `report/limits.rs` |
//! | `--busy` `--incast` `--outcast` `--at-once` | `cli/mesh.rs` | `mesh/schedule.rs` |
//! | `--hosts` `--rsh` `--stride-path` | `cli/mesh.rs` | `program/mesh/ssh.rs` |
//! | `--rendezvous` | `cli/mesh.rs` | `mesh/rendezvous.rs`, `program/mesh/meet.rs` |
//! | `--ranks` | `cli/mesh.rs` | `mesh/launcher.rs` |

pub mod cli;
pub mod control;
pub mod endpoint;
mod features;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod mesh;
pub mod plan;
pub mod program;
pub mod report;
pub mod stats;
mod thread;
