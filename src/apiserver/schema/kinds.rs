//! The API's kinds, field by field.

use super::{Field, Kind, Type, always, field, never, pointer};
use crate::apiserver::gotime::Precision;

const TEXT: Type = Type::Text("string");

/// The fields of every object that state its type.
pub(in crate::apiserver) const HEAD: Kind =
    Kind { name: "", version: "", fields: &[field("kind", TEXT), field("apiVersion", TEXT)] };

/// A Lease.
pub(in crate::apiserver) const LEASE: Kind = Kind {
    name: "Lease",
    version: "coordination.k8s.io/v1",
    fields: &[
        field("kind", TEXT),
        field("apiVersion", TEXT),
        always("metadata", Type::Object("ObjectMeta", METADATA)),
        always("spec", Type::Object("LeaseSpec", SPEC)),
    ],
};

/// An access review: what the client may do.
pub(in crate::apiserver) const REVIEW: Kind = Kind {
    name: "SelfSubjectAccessReview",
    version: "authorization.k8s.io/v1",
    fields: &[
        field("kind", TEXT),
        field("apiVersion", TEXT),
        always("metadata", Type::Object("ObjectMeta", METADATA)),
        always(
            "spec",
            Type::Object(
                "SelfSubjectAccessReviewSpec",
                &[
                    pointer("resourceAttributes", Type::Object("ResourceAttributes", RESOURCE)),
                    pointer("nonResourceAttributes", Type::Object("NonResourceAttributes", NO_RESOURCE)),
                ],
            ),
        ),
        never("status", Type::Anything),
    ],
};

/// The body of a DELETE.
pub(in crate::apiserver) const DELETE_OPTIONS: Kind = Kind {
    name: "DeleteOptions",
    version: "meta.k8s.io/v1",
    fields: &[
        field("kind", TEXT),
        field("apiVersion", TEXT),
        pointer("gracePeriodSeconds", Type::Int64),
        pointer("preconditions", Type::Object("Preconditions", PRECONDITIONS)),
        pointer("orphanDependents", Type::Bool),
        pointer("propagationPolicy", Type::Text("v1.DeletionPropagation")),
        field("dryRun", Type::TextList),
        pointer("ignoreStoreReadErrorWithClusterBreakingPotential", Type::Bool),
    ],
};

pub(super) const METADATA: &[Field] = &[
    field("name", TEXT),
    field("generateName", TEXT),
    field("namespace", TEXT),
    never("selfLink", TEXT),
    field("uid", Type::Text("types.UID")),
    field("resourceVersion", TEXT),
    field("generation", Type::Int64),
    field("creationTimestamp", Type::Time(Precision::Seconds)),
    pointer("deletionTimestamp", Type::Time(Precision::Seconds)),
    pointer("deletionGracePeriodSeconds", Type::Int64),
    field("labels", Type::TextMap),
    field("annotations", Type::TextMap),
    field("ownerReferences", Type::ObjectList("OwnerReference", OWNER)),
    field("finalizers", Type::TextList),
    never("managedFields", Type::ObjectList("ManagedFieldsEntry", MANAGED)),
];

const OWNER: &[Field] = &[
    pointer("apiVersion", TEXT),
    pointer("kind", TEXT),
    pointer("name", TEXT),
    pointer("uid", Type::Text("types.UID")),
    pointer("controller", Type::Bool),
    pointer("blockOwnerDeletion", Type::Bool),
];

const MANAGED: &[Field] = &[
    field("manager", TEXT),
    field("operation", Type::Text("v1.ManagedFieldsOperationType")),
    field("apiVersion", TEXT),
    pointer("time", Type::Time(Precision::Seconds)),
    field("fieldsType", TEXT),
    never("fieldsV1", Type::Anything),
    field("subresource", TEXT),
];

const SPEC: &[Field] = &[
    pointer("holderIdentity", TEXT),
    pointer("leaseDurationSeconds", Type::Int32),
    pointer("acquireTime", Type::Time(Precision::Micros)),
    pointer("renewTime", Type::Time(Precision::Micros)),
    pointer("leaseTransitions", Type::Int32),
    pointer("strategy", Type::Text("v1.CoordinatedLeaseStrategy")),
    pointer("preferredHolder", TEXT),
];

const RESOURCE: &[Field] = &[
    field("namespace", TEXT),
    field("verb", TEXT),
    field("group", TEXT),
    field("version", TEXT),
    field("resource", TEXT),
    field("subresource", TEXT),
    field("name", TEXT),
    pointer("fieldSelector", Type::Anything),
    pointer("labelSelector", Type::Anything),
];

const NO_RESOURCE: &[Field] = &[field("path", TEXT), field("verb", TEXT)];

const PRECONDITIONS: &[Field] = &[pointer("uid", Type::Text("types.UID")), pointer("resourceVersion", TEXT)];
