//! Probes over HTTP.
