//! Init and its link to the elector, with real processes: the test plays the elector. It sends what an elector sends, and observes
//! what happens to the workload inside the PID namespace.

#![allow(
    clippy::expect_used,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking, on all that it did not expect, and says why"
)]

use std::process::ExitCode;

use libtest_mimic::Arguments;
use support::{fresh, slept, trials};

mod always;
mod deadlines;
mod electors;
mod faces;
mod forks;
mod frozen;
mod fuses;
mod health;
mod hooks;
mod page;
mod standby;
mod start;
mod stops;
mod world;

fn main() -> ExitCode {
    if let Some(code) = faces::worn() {
        return code;
    }
    support::slewed::steady();
    // Init, the test and all others share its clocks.
    slept::enter();
    // Those that wait longest begin first.
    let trials = trials![
        fuses: init_and_elector_stopped_the_workload_dies_before_e_and_not_before_h,
            what_left_the_group_dies_too_once_a_renewal_has_passed, the_same_holds_where_init_is_not_pid_1,
            what_joined_the_process_group_of_init_dies_too_and_init_does_not,
            what_left_the_group_soon_after_the_start_dies_without_a_renewal, what_left_the_group_soon_after_a_promotion_does_too,
            an_extension_in_the_link_of_a_stopped_init_comes_too_late_at_h, a_demoted_workload_outlives_h,
            one_whose_connection_is_reset_kills_early_and_the_term_ends_with_a_reason_of_its_own,
            they_leave_room_for_the_next_elector_whatever_was_open_at_the_start;
        deadlines: an_elector_that_says_nothing_more_costs_the_workload_its_life_before_e,
            a_workload_that_floods_init_with_orphans_and_signals_is_killed_in_time_all_the_same,
            an_extension_that_waited_while_init_was_stopped_saves_the_workload,
            init_that_was_stopped_past_h_kills_before_it_does_anything_else;
        electors: the_workload_does_not_notice_that_its_elector_was_killed,
            an_elector_that_was_stopped_is_killed_with_its_plugins_and_replaced, one_that_speaks_nonsense_is_replaced,
            why_init_kills_one_is_in_the_log, it_has_a_session_of_its_own_and_no_standard_input;
        always: a_standby_that_ends_before_the_elector_has_spoken_is_spoken_of,
            the_role_is_told_by_signals_and_acknowledged_by_datagrams,
            a_workload_that_was_dead_when_its_demotion_was_signalled_is_proved_dead,
            a_workload_that_does_not_handle_its_demotion_is_killed_and_proved_dead,
            a_stopped_workload_is_told_no_role_by_a_signal_that_it_has_not_taken,
            a_promotion_waits_for_the_handler_of_a_workload_that_just_started,
            a_promotion_whose_messenger_was_killed_is_a_stop_and_a_fresh_standby,
            a_workload_that_does_not_handle_its_promotion_by_s_is_stopped,
            a_workload_that_floods_its_socket_is_killed_in_time_all_the_same, the_role_is_told_and_acknowledged_by_hooks,
            what_a_hook_leaves_running_ends_with_it, a_word_from_somebody_else_acknowledges_nothing,
            a_word_from_before_the_question_is_no_answer,
            a_workload_that_takes_its_signals_lives_on_in_either_role_however_they_were_set_at_the_start;
        page: a_workload_reads_what_init_enforces_and_cannot_write_it,
            a_workload_that_always_runs_reads_of_one_term_after_the_other, nobody_else_has_it, hooks_read_until_when_they_may_act,
            where_there_is_none_it_is_said_once_and_the_workload_runs, a_frozen_init_lets_nobody_believe_that_it_is_held_past_h;
        forks: a_workload_whose_init_stands_still_after_the_fork_is_not_started_past_s,
            a_hook_whose_init_stands_still_after_the_fork_is_not_started_past_s;
        frozen: a_frozen_workload_stands_still_as_a_whole_until_it_leads_and_the_next_one_does_too,
            no_process_of_a_frozen_standby_runs_while_it_is_killed, what_somebody_leaves_in_the_container_costs_no_frozen_standby,
            a_lead_whose_init_stands_still_past_s_continues_nothing,
            a_frozen_workload_that_somebody_else_continues_is_killed_whichever_process_it_is_and_the_next_one_leads;
        stops: stopped_is_told_when_the_whole_tree_is_gone_and_not_before_whether_init_is_pid_1_or_not,
            a_process_that_was_executed_into_the_container_is_gone_too,
            without_its_proc_nothing_is_proved_before_h_kills_everything,
            term_is_a_planned_stop_then_a_release_then_the_workloads_code, the_workload_is_told_its_term,
            a_workload_for_which_there_is_no_descriptor_is_tried_again;
        health: what_systemd_notify_says_of_a_workload_is_told_and_what_tenure_does_not_do_is_refused,
            a_workload_with_systemds_library_is_ready_and_has_a_watchdog_that_ends_it_once_it_is_stopped,
            a_program_that_asks_is_told_the_role_and_its_failures_end_the_term,
            a_program_that_hangs_is_killed_with_all_of_its_group_and_has_failed,
            nothing_that_is_said_while_a_promotion_waits_is_lost;
        hooks: the_hooks_around_a_leader_run_in_order_and_know_what_they_are_for,
            what_a_hook_prints_is_logged_line_by_line_with_its_name,
            a_hook_that_prints_without_end_waits_for_nobody_and_what_is_too_much_is_counted,
            what_a_hook_leaves_running_prints_on_and_holds_up_neither_its_end_nor_the_proof;
        standby: the_standby_is_gone_as_a_whole_before_the_leader_starts_and_the_leader_before_the_standby;
        start: the_pod_gives_the_name, the_workload_and_its_hooks_have_the_score_that_was_configured, only_init_has_a_short_slice;
    ];
    fresh::start();
    let mut arguments = Arguments::from_args();
    // They mostly wait.
    arguments.test_threads.get_or_insert(8);
    libtest_mimic::run(&arguments, trials).exit_code()
}
