//! The Warning headers of an answer.
//!
//! Owns their format and their limit, which is the real server's.

use std::collections::HashSet;

use http::HeaderValue;

/// The total number of characters; beyond it, each text is truncated.
const ALL: usize = 4 * 1024;
/// Characters of a truncated text.
const EACH: usize = 256;

/// Warns of removed owners, if there are any; `of_patch`: of those in the result of a patch.
pub(super) fn of_owners(twice: &[String], of_patch: bool) -> Option<String> {
    let found = if of_patch { " after mutating admission happens" } else { "" };
    let uids = twice.join(", ");
    (!twice.is_empty()).then(|| {
        format!(
            ".metadata.ownerReferences contains duplicate entries{found}; API server dedups owner references in 1.20+, and may reject \
             such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {uids}"
        )
    })
}

/// The headers for these texts, without duplicates.
pub(super) fn headers(texts: &[String]) -> Vec<HeaderValue> {
    let mut seen = HashSet::new();
    let texts: Vec<_> = texts.iter().filter(|text| seen.insert(*text)).collect();
    let is_cut = texts.iter().map(|text| text.chars().count()).sum::<usize>() > ALL;
    let (mut given, mut said) = (0, 0);
    let mut headers = Vec::new();
    for text in texts {
        // The text that exceeds the limit is still sent.
        if given > ALL && said >= ALL {
            break;
        }
        given += text.chars().count();
        let text: String = if is_cut { text.chars().take(EACH).collect() } else { text.clone() };
        said += text.chars().count();
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
        headers.extend(HeaderValue::from_str(&format!("299 - \"{quoted}\"")));
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(texts: impl Iterator<Item = String>) -> Vec<usize> {
        let texts: Vec<_> = texts.collect();
        headers(&texts).iter().map(|header| header.len() - r#"299 - """#.len()).collect()
    }

    #[test]
    fn what_fits_is_said_whole() {
        assert_eq!(lengths((0..8).map(|text| format!("{text:0512}"))), [512; 8]);
    }

    #[test]
    fn of_what_does_not_fit_the_first_texts_are_said_in_part() {
        assert_eq!(lengths((0..50).map(|text| format!("{text:0300}"))), [256; 16]);
    }

    #[test]
    fn a_text_that_comes_twice_is_said_once() {
        assert_eq!(lengths(["one", "two", "one"].map(String::from).into_iter()), [3, 3]);
    }
}
