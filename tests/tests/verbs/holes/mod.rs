//! Misuse that other verbs wrappers allow in safe code. With sideway, it does not compile (`sideway/src/misuse/`), or
//! is a typed error without effect. All tests run on the recording device, on any machine.
//!
//! | hole | closed by |
//! |---|---|
//! | 1. completions that alias one cursor, collected or kept after the poll | `misuse/completions.rs`; `polling::completions_are_lent_one_at_a_time`, `poll_each::*` |
//! | 2. two pollers on one queue | `misuse/completions.rs`; `polling::poll_ends_before_the_next` |
//! | 3. a channel cloned, and so destroyed twice | `misuse/completions.rs`; `ownership::channel_is_destroyed_once` |
//! | 4. a device from any pointer | `misuse/memory.rs`; `ownership::context_outlives_the_list` |
//! | 5. null readers of completions | `polling::unrequested_field_is_an_error`, `polling::queue_without_a_reader_is_refused` |
//! | 6. null operations | `posting::missing_operation_*` |
//! | 8. a queue, or channel, of another device | `ownership::*_of_another_context_*` |
//! | 9. memory that C should fill and does not | `values::unfilled_driver_output_is_zero` |
//! | 12. posted half-built requests | `posting::dropped_request_is_not_posted`, `posting::dropped_batch_is_not_posted` |
//! | 13. panics in drop | `ownership::failed_destroy_is_logged_without_a_panic` |
//! | an excess request, written over one in flight | `send_room::safe_code_*` |
//! | panics on values | `values::*` |
//!
//! Tests of `tests/tests/cm` close those of the connection manager:
//!
//! | hole | closed by |
//! |---|---|
//! | 7. a pointer to a temporary in `resolve_addr` | `identifiers::source_address_is_valid_when_c_reads_it` |
//! | 9. `get_qp_attr` without initialisation | `identifiers::partly_written_attributes_are_otherwise_zero` |
//! | 10. contexts of librdmacm that are never released | `contexts::unused_context_is_released` |
//! | 11. fields of an identifier read while an event writes them | `threads::identifier_is_not_read_while_an_event_writes_it` |
#![expect(clippy::unwrap_used, reason = "a test")]

mod ownership;
mod poll_each;
mod polling;
mod posting;
mod send_room;
mod values;
