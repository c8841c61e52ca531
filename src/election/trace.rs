//! W3C trace contexts, as they travel in the Lease's annotation and in TRACEPARENT.

use std::fmt;

/// A span of a recorded trace; except in [`TraceContext::UNKNOWN`], neither id is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// 16 bytes.
    pub trace_id: u128,
    /// 8 bytes.
    pub span_id: u64,
}

impl TraceContext {
    /// Invalid by the W3C definition: the context of a transition that nobody kept. Never sent.
    pub const UNKNOWN: Self = Self { trace_id: 0, span_id: 0 };

    /// Parses version 00 of the `traceparent` format; none for anything else, which others may have written.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let hex = |part: &str, length| part.len() == length && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if version != "00" || parts.next().is_some() || !hex(trace, 32) || !hex(span, 16) || !hex(flags, 2) {
            return None;
        }
        let context = Self { trace_id: u128::from_str_radix(trace, 16).ok()?, span_id: u64::from_str_radix(span, 16).ok()? };
        (context.trace_id != 0 && context.span_id != 0).then_some(context)
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-01", self.trace_id, self.span_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_reads_what_it_writes() {
        let context = TraceContext { trace_id: 0xabc, span_id: 7 };

        assert_eq!(TraceContext::parse(&context.to_string()), Some(context));
    }

    #[test]
    fn what_others_wrote_into_the_annotation_is_none_unless_it_is_sound() {
        let sound = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01";
        assert!(TraceContext::parse(sound).is_some());
        for broken in [
            "",
            "00",
            "00-00000000000000000000000000000000-0123456789abcdef-01",
            "00-0123456789abcdef0123456789abcdef-0000000000000000-01",
            "01-0123456789abcdef0123456789abcdef-0123456789abcdef-01",
            "00-0123456789ABCDEF0123456789abcdef-0123456789abcdef-01",
            "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01-x",
            "00-+123456789abcdef0123456789abcdef-0123456789abcdef-01",
            "00-0123456789abcdef0123456789abcdef-123456789abcdef-01",
            "00-0123456789abcdef0123456789abcdef-0123456789abcdef-1",
            "00-0123456789abcdef0123456789abcdef-0123456789abcdef-0g",
        ] {
            assert_eq!(TraceContext::parse(broken), None, "{broken}");
        }
    }
}
