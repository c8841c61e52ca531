//! Probes over HTTP: `/livez`, `/readyz`, `/leader`.
//!
//! Owns the listener and the answers. Never decides anything and never delays the elector: it reads what the elector's loop last
//! wrote into [`Health`], on the same thread, with limits on connections, time and size.
//!
//! | path | 200 | 503 |
//! |---|---|---|
//! | `/livez` | init answers, and a leader renews | init has been silent for D, or a leader has not renewed for D and [`TOLERANCE`] |
//! | `/readyz` | the elector has read the Lease, on leaders and standbys, or goes on with a term of its predecessor; with `http.ready: workload` what runs is ready too | before that |
//! | `/leader` | this replica leads | it does not |

mod answer;
mod health;
mod server;

pub use self::{
    health::{Health, TOLERANCE, Vital},
    server::{HttpError, serve},
};
