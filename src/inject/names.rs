//! The labels and annotations by which somebody asks for tenure in a pod, as `docs/reference.md` shows them.

/// Label of a pod: the name of its Lease. It asks for tenure in the pod. The Lease of a Job is `lock-NAME`.
pub(super) const LEASE: &str = "tenure.dev/lease";
/// Annotation of a pod: the container of the program. Without it `kubectl.kubernetes.io/default-container` names it, or it is the first.
pub(super) const CONTAINER: &str = "tenure.dev/container";
/// Annotation of a pod: the whole command line in JSON, where the container has no `command`. It becomes `workload.command`.
pub(super) const COMMAND: &str = "tenure.dev/command";
/// Annotation of a pod: `false` leaves the witness out.
pub(super) const HAS_WITNESS: &str = "tenure.dev/witness";
/// Annotation of what `tenure inject` has changed or added: what was there before.
pub(super) const BEFORE: &str = "tenure.dev/before";
