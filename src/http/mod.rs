//! Pages over HTTP, to be read only.
//!
//! Owns the listener, the answers, and `page.html`, the page for people. Never decides anything and never delays the elector: it
//! reads what the elector's loop last wrote into [`Health`], on the same thread, with limits on connections, time and size.
//!
//! | path | 200 | 503 |
//! |---|---|---|
//! | `/livez` | init answers, and a leader renews | init has been silent for D, or a leader has not renewed for D and [`TOLERANCE`] |
//! | `/readyz` | the elector has read the Lease, on leaders and standbys, or goes on with a term of its predecessor; with `http.ready: workload` what runs is ready too | before that, or this replica may not update the Lease |
//! | `/leader` | the workload of this replica leads | it does not; both name the holder |
//! | `/metrics` | for Prometheus | |
//! | `/status`, `/events` | JSON: now, and again with each change (server-sent events) | |
//! | `/` | both for people | |

mod answer;
mod board;
mod events;
mod health;
mod server;
#[cfg(test)]
mod tests;

pub use self::{
    answer::TOLERANCE,
    health::Health,
    server::{HttpError, serve},
};
