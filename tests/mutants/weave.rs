//! Weaves many mutants into one text, so that all are built at once: a function has its original body and one for each of its
//! mutants, and chooses between them when it is called.

use std::{ops::Range, path::PathBuf};

/// A change of a text.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// The mutant's number; 0 means none.
    pub(crate) number: usize,
    /// Relative to the root of the repository.
    pub(crate) file: PathBuf,
    /// The part of the text that is replaced.
    pub(crate) span: Range<usize>,
    /// The replacement.
    pub(crate) text: String,
}

/// A text with its mutants in it.
#[derive(Debug, Default)]
pub(crate) struct Woven {
    pub(crate) text: String,
    /// The line ranges, counted from 1, that belong to each mutant.
    pub(crate) lines: Vec<(Range<usize>, usize)>,
}

/// Weaves `changes` into `text`; `ask` is the call that returns which mutant runs. An error: one of them is not inside a function.
pub(crate) fn weave(text: &str, changes: &[&Change], ask: &str) -> Result<Woven, String> {
    let bodies = bodies(text);
    if let Some(outside) = changes.iter().find(|change| !bodies.iter().any(|body| holds(&body.inner, &change.span))) {
        return Err(format!("mutant {} lies in no function", outside.number));
    }
    let asks = |body: &&Body<'_>| body.constant.is_some() && changes.iter().any(|change| holds(&body.inner, &change.span));
    let asking: Vec<String> = bodies.iter().filter(asks).map(|body| format!("{}(", body.name)).collect();
    let (mut woven, mut done) = (Woven::default(), 0);
    for Body { inner, constant, .. } in bodies {
        let own: Vec<&&Change> = changes.iter().filter(|change| holds(&inner, &change.span)).collect();
        let body = &text[inner.clone()];
        // A function that asks, or calls one that does, cannot be constant.
        if let Some(constant) = constant
            && (!own.is_empty() || asking.iter().any(|call| body.contains(call)))
        {
            woven.text.push_str(&text[done..constant.start]);
            done = constant.end;
        }
        if own.is_empty() {
            continue;
        }
        woven.text.push_str(&text[done..inner.start]);
        woven.text.push_str(&format!("match {ask} {{\n"));
        for Change { number, span, text: new, .. } in own {
            woven.text.push_str(&format!("{number} => {{\n"));
            let first = line(&woven.text);
            woven.text.extend([&text[inner.start..span.start], new, &text[span.end..inner.end]]);
            woven.lines.push((first..line(&woven.text) + 1, *number));
            woven.text.push_str("\n}\n");
        }
        woven.text.extend(["_ => {\n", body, "\n}\n}\n"]);
        done = inner.end;
    }
    woven.text.push_str(&text[done..]);
    Ok(woven)
}

struct Body<'a> {
    name: &'a str,
    /// The range between its braces.
    inner: Range<usize>,
    /// The word `const`, if present.
    constant: Option<Range<usize>>,
}

/// The bodies of all functions, except nested ones. The text is formatted by rustfmt: a function ends at the first line with a
/// closing brace at the function's indentation.
fn bodies(text: &str) -> Vec<Body<'_>> {
    let mut bodies: Vec<Body<'_>> = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let (start, code) = (at, line.trim_start());
        at += line.len();
        let indent = line.len() - code.len();
        if !is_function(code) || bodies.last().is_some_and(|body| start < body.inner.end) {
            continue;
        }
        let close = format!("\n{}}}", " ".repeat(indent));
        let Some(open) = text[start..].find("{\n").map(|open| start + open) else { continue };
        let head = &text[start..open];
        // A declaration without a body, or a function on a single line.
        if head.contains(";\n") || head.contains("}\n") {
            continue;
        }
        let Some(end) = text[open..].find(&close).map(|end| open + end) else { continue };
        let constant = head.find("const fn").map(|word| start + word..start + word + "const ".len());
        let name = head.split_once("fn ").map_or("", |(_, rest)| rest.split(['(', '<']).next().unwrap_or_default());
        bodies.push(Body { name, inner: open + 1..end, constant });
    }
    bodies
}

fn is_function(code: &str) -> bool {
    let code = code.strip_prefix("pub").map_or(code, |rest| rest.split_once(' ').map_or(rest, |(_, rest)| rest));
    ["fn ", "const fn ", "unsafe fn ", "async fn "].iter().any(|word| code.starts_with(word))
}

fn holds(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

fn line(text: &str) -> usize {
    text.matches('\n').count() + 1
}
