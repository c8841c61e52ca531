//! The election in virtual time, by the rules of the law.

mod acquire;
mod armed;
mod attempts;
mod bench;
mod campaign_outcome;
mod creation_wait;
mod displaced;
mod overtaken;
mod release;
mod release_outcome;
mod renew;
mod requests;
mod resume;
mod robbed;
mod stopping;
mod traces;
mod watching;
mod words;
