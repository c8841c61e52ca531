//! Decides what becomes of the workload.
