//! The election in virtual time, by the rules of the law.

mod acquire;
mod armed;
mod attempts;
mod bench;
mod campaign_outcome;
mod candidates;
mod nobody;
mod patience;
mod pool;
mod release;
mod release_outcome;
mod renew;
mod requests;
mod resume;
mod stopping;
mod task;
mod traces;
mod watching;
mod words;
