//! Misuse that safe code of verbs wrappers used to allow, and what becomes of it here: it does not compile
//! (`tests/compile-fail/`), or it is a typed error and touches nothing. All run on the recording device, anywhere.
//!
//! | hole | closed by |
//! |---|---|
//! | 1. completions that alias one cursor, collected or kept beyond the poll | compile-fail `completion_*`, `poller_is_no_iterator`; `polling::completions_are_lent_one_at_a_time`, `poll_each::*` |
//! | 2. two pollers on one queue | compile-fail `two_pollers_on_one_queue`, `shared_queue_is_not_polled`, `queue_is_not_polled_in_its_own_poll`; `polling::a_poll_ends_before_the_next` |
//! | 3. a channel cloned, and so destroyed twice | compile-fail `completion_channel_is_no_clone`; `ownership::a_channel_is_destroyed_once` |
//! | 4. a device out of any pointer | compile-fail `device_*`; `ownership::a_context_outlives_the_list` |
//! | 5. readers of completions that are null | `polling::a_field_that_was_not_asked_for_is_none`, `polling::a_queue_without_a_reader_is_refused` |
//! | 6. operations that are null | `posting::an_operation_that_is_missing_*` |
//! | 8. a queue, or channel, of another device | `ownership::*_of_another_context_*` |
//! | 9. memory that C was to fill and did not | `values::what_a_driver_does_not_fill_is_zero` |
//! | 12. half-built requests that are posted | `posting::a_request_that_was_dropped_is_not_posted`, `posting::a_batch_that_was_dropped_is_not_posted` |
//! | 13. panics in drop | `ownership::a_destroy_that_fails_is_logged_and_no_panic` |
//! | a request too many, written over one in flight | `send_room::safe_code_*` |
//! | panics on values | `values::*` |
//!
//! Of the connection manager, and so not applicable to verbs:
//!
//! | hole | where |
//! |---|---|
//! | 7. a pointer to a temporary in `resolve_addr` | not applicable yet |
//! | 9. `get_qp_attr` without initialisation | not applicable yet |
//! | 10. contexts of librdmacm cached for ever | not applicable yet |
//! | 11. fields of an identifier read while an event writes them | not applicable yet |
#![expect(clippy::unwrap_used, reason = "a test")]

mod ownership;
mod poll_each;
mod polling;
mod posting;
mod send_room;
mod values;
