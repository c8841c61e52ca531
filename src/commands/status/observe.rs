//! `tenure status --observe`: whether the holder lives, by what it is seen to do.
//!
//! Never asks a wall clock: who renews lives, and what stayed as it is for its whole duration is nobody's any more, as for a
//! replica that would take it (law 11).

use std::time::Duration;

use crate::{
    alarm::sleep_until,
    cli::Status,
    clock,
    commands::{
        access::Access,
        seen::{Seen, State},
    },
    config::Config,
    election::record::{LeaseRecord, LeaseState},
    request::RequestError,
};

/// From one look to the next. A GET needs no other right than a replica has.
const PERIOD: Duration = Duration::from_millis(500);

/// The Lease, held or expired as it was seen to be; as it stands if nobody holds it, or not the wanted holder.
pub(super) async fn observe(
    status: &Status,
    config: &Config,
    access: &Access,
    namespace: &str,
) -> Result<Vec<Seen>, RequestError> {
    let (own, timing) = (config.lease.duration, config.timing());
    let (mut watched, mut takeable) = (None::<LeaseRecord>, clock::boot());
    loop {
        let asked = clock::boot();
        let Some(record) = access.lease(namespace, &config.lease.name).await? else { return Ok(vec![]) };
        let (now, seen) = (clock::boot(), Seen::at(clock::timestamp(), &record, own));
        let is_wanted = status.holder.as_deref().is_none_or(|holder| record.is_held_by(holder));
        match watched.replace(record.clone()) {
            _ if record.state() != LeaseState::Held || !is_wanted => return Ok(vec![seen]),
            Some(before) if record.says_the_same_as(&before) && asked < takeable => {}
            Some(before) if record.says_the_same_as(&before) => return Ok(vec![Seen { state: State::Expired, ..seen }]),
            Some(before) if record.renew_time() != before.renew_time() => return Ok(vec![Seen { state: State::Held, ..seen }]),
            Some(_) | None => takeable = timing.takeable(now, record.duration().unwrap_or(own)),
        }
        sleep_until(takeable.min(clock::boot() + PERIOD)).await;
    }
}
