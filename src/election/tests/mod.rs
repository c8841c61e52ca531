//! The election in virtual time, by the rules of the law.

mod acquire;
mod attempts;
mod bench;
mod campaign_outcome;
mod creation_wait;
mod overtaken;
mod release;
mod renew;
mod requests;
mod resume;
mod watching;
