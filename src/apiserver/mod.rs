//! The embedded Lease API.
