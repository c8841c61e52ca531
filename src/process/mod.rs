//! Spawns, signals, kills, reaps and proves processes.
