//! What users type.
