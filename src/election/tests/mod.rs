//! The election in virtual time, by the rules of the law.

mod acquire;
mod attempts;
mod bench;
mod campaign_outcome;
mod candidates;
mod flapping;
mod guard_deadline;
mod nobody;
mod obituary;
mod operators;
mod preemption;
mod release;
mod release_outcome;
mod renew;
mod requests;
mod resume;
mod schedule;
mod slots;
mod stopping;
mod task;
mod traces;
mod turn;
mod wait_limit;
mod watching;
mod words;
