//! Tests sockets on a veth pair. Each test's thread has its own network namespace. These tests need root; otherwise
//! they report that they did not run.
//!
//! # The cases of the kernel's own tests
//!
//! The kernel tests AF_XDP by `xskxceiver` (36 cases in Linux 6.18). Two of them change ring sizes of hardware, which
//! veth does not have (`HW_SW_MIN_RING_SIZE`, `HW_SW_MAX_RING_SIZE`). The table lists the others, with the test for
//! each:
//!
//! | case | test |
//! |---|---|
//! | `SEND_RECEIVE` | `traffic::packets_arrive_whole_and_in_order_4k` |
//! | `SEND_RECEIVE_2K_FRAME` | `traffic::packets_arrive_whole_and_in_order_2k` |
//! | `SEND_RECEIVE_SINGLE_PKT` | `traffic::single_packet_arrives` |
//! | `SEND_RECEIVE_9K_PACKETS` | `traffic::jumbo_packets_arrive_in_pieces` |
//! | `SEND_RECEIVE_UNALIGNED` | `traffic::unaligned_frames_carry_packets` |
//! | `SEND_RECEIVE_UNALIGNED_9K` | `traffic::jumbo_packets_arrive_in_pieces` |
//! | `POLL_RX`, `POLL_TX` | `traffic::waiting_receiver_wakes_and_times_out` |
//! | `POLL_RXQ_FULL` | `traffic::waiting_receiver_wakes_and_times_out` |
//! | `POLL_TXQ_FULL` | `errors::full_completion_ring_holds_packets_back_and_loses_none` |
//! | `ALIGNED_INV_DESC`, with 2 KiB, with pieces | `edges::packets_at_the_edges_of_aligned_frames_are_sent` |
//! | `UNALIGNED_INV_DESC`, with 4001 bytes, with pieces | `edges::packets_at_the_edges_of_unaligned_frames_are_sent` |
//! | `STAT_TX_INVALID` | the same two: no invalid descriptor can be written |
//! | `TOO_MANY_FRAGS` | `traffic::piece_count_is_limited` |
//! | `UMEM_HEADROOM` | `traffic::headroom_lies_in_front_of_packets` |
//! | `TEARDOWN` | `edges::packets_arrive_after_each_reopening` |
//! | `BIDIRECTIONAL` | `traffic::packets_travel_both_ways` |
//! | `STAT_RX_DROPPED` | `traffic::large_packet_without_multi_buffer_is_dropped_and_counted` |
//! | `STAT_RX_FULL` | `traffic::full_rx_ring_is_counted` |
//! | `STAT_FILL_EMPTY` | `traffic::empty_fill_ring_is_counted` |
//! | `XDP_PROG_CLEANUP` | `programs::slot_of_the_map_takes_another_socket`, `objects::dropped_link_detaches_the_program` |
//! | `XDP_DROP_HALF` | `programs::program_drops_half_of_the_packets` |
//! | `XDP_SHARED_UMEM` | `programs::sockets_of_one_queue_receive_what_the_program_selects` |
//! | `XDP_METADATA_COPY` | `programs::metadata_of_the_program_lies_in_front_of_the_packet` |
//! | `XDP_METADATA_COPY_MULTI_BUFF` | `programs::metadata_of_the_program_lies_in_front_of_the_first_piece` |
//! | `XDP_ADJUST_TAIL_SHRINK`, `XDP_ADJUST_TAIL_GROW` | `programs::program_shortens_and_extends_packets` |
//! | the same two with `_MULTI_BUFF` | `programs::program_shortens_and_extends_packets_of_several_pieces` |
//! | `TX_QUEUE_CONSUMER` | `edges::one_call_sends_its_budget` |

#![allow(clippy::unwrap_used, reason = "a test")]

mod edges;
mod errors;
mod failing;
mod link;
mod net;
mod objects;
mod own;
mod programs;
mod traffic;
