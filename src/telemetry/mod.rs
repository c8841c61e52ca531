//! Traces, metrics and log lines; can never delay a transition.
