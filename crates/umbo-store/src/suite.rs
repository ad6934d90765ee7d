//! The contract suite: one case for each promise of [`Store`], for every engine to pass (feature
//! `testing`).
//!
//! The test file of an engine defines how to make a store ([`Engine`]) and, if rows outlive the process, how
//! to open it again ([`Restart`]), and invokes [`contract_suite!`] and [`restart_suite!`]; each case becomes
//! a `#[tokio::test]` of its own, so the engine's crate needs tokio with `macros` and `rt-multi-thread` among
//! its dev-dependencies. No case reads a real clock, and no case depends on how an engine stores rows.
//!
//! [`Store`]: crate::Store
//! [`contract_suite!`]: crate::contract_suite
//! [`restart_suite!`]: crate::restart_suite

use std::sync::Arc;

use async_trait::async_trait;

use crate::compressed_store::CompressedStore;
use crate::manual_clock::ManualClock;
use crate::store::Store;

pub mod atomic;
pub mod condition;
pub mod datasets;
pub mod differential;
pub mod expiry;
pub mod fence;
pub mod fencing_tokens;
pub mod idempotency;
pub mod keys;
pub mod large;
pub mod lifecycle;
pub mod point;
pub mod range;
pub mod removal;
pub mod restart;
pub mod scan;
mod seeded;
mod seen;
pub mod sizes;
mod subject;
mod twin;
pub mod version;
mod versions;

/// How the suite makes a store. Holds the resources of the store, such as its folder.
#[async_trait]
pub trait Engine: Sized + Send + Sync + 'static {
    /// Makes a fresh, empty store of several shards that uses `clock`.
    async fn create(clock: Arc<ManualClock>) -> Self;

    /// Returns the store.
    fn store(&self) -> Arc<dyn Store>;
}

/// An engine that is given every value compressed: the suite on it holds the engine within to what it promises of the
/// forms of values.
#[derive(Debug)]
pub struct Compressed<E>(E);

#[async_trait]
impl<E: Engine> Engine for Compressed<E> {
    async fn create(clock: Arc<ManualClock>) -> Self {
        Self(E::create(clock).await)
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::new(CompressedStore(self.0.store()))
    }
}

#[async_trait]
impl<E: Restart> Restart for Compressed<E> {
    async fn reopen(self) -> Self {
        Self(self.0.reopen().await)
    }
}

/// An engine whose rows outlive the process.
#[async_trait]
pub trait Restart: Engine {
    /// Ends the store without closing it, as far as a process can, and opens its files again with the same
    /// clock. No other reference to the store exists then.
    async fn reopen(self) -> Self;
}

/// Makes one test of each case that every engine must pass, for a
/// [`suite::Engine`].
///
/// [`suite::Engine`]: crate::suite::Engine
#[macro_export]
macro_rules! contract_suite {
    ($engine:ty) => {
        $crate::suite_cases! { $engine;
            point:
                get_returns_what_was_put,
                put_replaces_the_whole_row,
                writes_say_whether_a_row_existed,
                an_async_write_is_visible_at_once,
                values_of_every_size_come_back,
                content_fields_are_kept,
                multi_get_answers_in_order,
                rows_of_another_shard_are_refused,
                a_long_multi_get_ends_early,
                namespaces_are_isolated;
            keys:
                any_bytes_are_a_key,
                partition_and_sort_key_do_not_run_together,
                the_longest_keys_are_kept;
            range:
                ranges_agree_with_a_sorted_twin,
                prefixes_may_end_in_the_highest_byte,
                empty_ranges_are_answered,
                chunks_are_bounded_by_what_is_read,
                start_is_included_and_end_is_not,
                a_chunk_ends_with_the_row_that_reaches_the_bytes,
                chunks_are_bounded_by_the_store,
                walks_give_every_row_once,
                walks_survive_changes_between_chunks,
                a_walk_goes_on_from_a_removed_row,
                keys_only_leaves_just_the_bytes_out,
                a_chunk_is_one_snapshot;
            condition:
                conditions_on_a_present_row,
                conditions_on_an_absent_row,
                mutations_of_one_key_are_applied_in_order,
                a_refused_mutation_stands_alone,
                older_data_never_replaces_newer;
            atomic:
                a_group_is_applied_together,
                a_refused_group_leaves_no_trace,
                groups_of_partitions_are_independent,
                a_group_sees_its_own_mutations;
            version:
                versions_grow_whatever_is_proposed,
                versions_stay_near_the_clock,
                versions_grow_while_the_clock_goes_back,
                versions_outlive_their_rows,
                refused_mutations_give_no_version;
            expiry:
                a_row_goes_at_its_millisecond,
                an_expired_row_counts_as_absent,
                a_row_may_be_born_expired,
                a_put_sets_the_expiry_anew,
                only_expired_rows_are_nothing,
                a_row_lives_for_its_time_at_its_shard,
                a_change_is_refused_until_it_is_due,
                a_jump_of_the_clock_makes_no_change_due;
            removal:
                a_range_is_removed_in_steps,
                a_step_removes_from_the_front,
                removals_select_as_ranges_do,
                removals_pass_over_expired_rows;
            fence:
                a_fenced_namespace_is_refused,
                an_older_copy_changes_nothing,
                rows_behind_a_fence_are_reclaimed,
                writers_meet_a_fence;
            fencing_tokens:
                a_later_run_refuses_earlier_ones,
                a_refused_mutation_of_a_run_counts,
                runs_of_ended_loads_are_refused;
            scan:
                segments_cover_the_namespace_once,
                scanned_rows_are_whole,
                equal_scans_give_equal_orders,
                scan_chunks_are_bounded,
                scans_pass_over_expired_rows,
                scans_survive_changes_between_chunks,
                an_empty_namespace_is_nothing;
            lifecycle:
                a_late_write_is_refused,
                a_dropped_write_is_whole_or_withdrawn,
                a_dropped_write_never_undoes_a_later_one,
                writes_and_removals_of_a_partition_are_in_order,
                concurrent_writers_are_put_in_order,
                one_of_many_creators_wins,
                conditional_increments_lose_nothing,
                shards_tell_their_state,
                a_closed_store_takes_no_writes;
            idempotency:
                a_repeated_write_is_answered_from_its_record,
                a_refusal_is_replayed_if_it_is_kept,
                a_key_is_that_of_one_request,
                a_batch_is_replayed_row_by_row,
                an_atomic_group_is_replayed_whole,
                equal_requests_in_flight_are_applied_once,
                a_late_write_leaves_no_record,
                increments_are_exact,
                increments_keep_the_expiry;
            large:
                a_large_value_comes_back,
                a_part_of_a_large_value_is_none,
                a_large_value_is_put_on_a_condition,
                a_large_value_goes_with_its_last_row,
                an_upload_without_a_row_goes,
                an_upload_is_put_and_given_up_at_once;
            datasets:
                datasets_take_the_same_writes,
                idempotency_records_outlive_an_activation,
                rows_of_loads_need_a_dataset_that_is_built,
                calls_that_were_placed_otherwise_are_refused,
                a_kept_version_is_the_rows_and_later_ones_are_above,
                a_written_row_stays_under_a_kept_version,
                a_large_value_with_a_kept_version_is_put_again;
            sizes:
                sizes_follow_the_rows;
            differential:
                random_operations_agree_with_the_twin;
        }
    };
}

/// Makes one test of each case that an engine must pass whose rows outlive the process, for a
/// [`suite::Restart`].
///
/// [`suite::Restart`]: crate::suite::Restart
#[macro_export]
macro_rules! restart_suite {
    ($engine:ty) => {
        $crate::suite_cases! { $engine;
            restart:
                rows_outlive_a_restart,
                removals_outlive_a_restart,
                conditions_outlive_a_restart,
                as_of_outlives_a_restart,
                closing_keeps_async_writes,
                a_close_amid_writes_is_clean;
            fence:
                fences_outlive_a_restart;
            fencing_tokens:
                runs_outlive_restarts;
            idempotency:
                records_outlive_a_restart;
            large:
                large_values_outlive_a_restart;
            datasets:
                datasets_outlive_restarts,
                kept_versions_outlive_a_restart;
            sizes:
                sizes_outlive_a_restart;
            version:
                versions_grow_across_restarts;
            differential:
                random_operations_and_restarts_agree_with_the_twin;
        }
    };
}

/// Makes the tests of the suites; not for use by engines.
#[doc(hidden)]
#[macro_export]
macro_rules! suite_cases {
    ($engine:ty; $($area:ident: $($case:ident),+;)+) => {
        $($(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::suite::$area::$case::<$engine>().await;
            }
        )+)+
    };
}
