//! The commands beside `run`, one file each.
