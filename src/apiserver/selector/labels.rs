//! The syntax of label selectors, token by token as upstream reads it.
//!
//! Owns its grammar and its error messages.

use std::collections::BTreeSet;

use super::{Subject, Term, Test};
use crate::apiserver::names;

/// The terms of `text`.
///
/// # Errors
/// Go's message if it is not a selector.
pub(super) fn parse(text: &str) -> Result<Vec<Term>, String> {
    let mut tokens = Tokens { rest: text };
    let mut terms = Vec::new();
    while !tokens.peek().is_empty() {
        let first = tokens.peek();
        if !begins_term(first) {
            return Err(format!("found '{first}', expected: !, identifier, or 'end of string'"));
        }
        terms.push(term(&mut tokens).map_err(|why| format!("unable to parse requirement: {why}"))?);
        match (tokens.next(), tokens.peek()) {
            ("", _) => break,
            (",", next) if begins_term(next) => {}
            (",", next) => return Err(format!("found '{next}', expected: identifier after ','")),
            (other, _) => return Err(format!("found '{other}', expected: ',' or 'end of string'")),
        }
    }
    Ok(terms)
}

/// What is left to read. A token is a word or an operator; the empty one is the end.
struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Tokens<'a> {
    fn peek(&self) -> &'a str {
        let text = self.rest.trim_start_matches(is_blank);
        let length = match text.as_bytes() {
            [b'=' | b'!', b'=', ..] => 2,
            [b'=' | b'!' | b'(' | b')' | b',' | b'<' | b'>', ..] => 1,
            _ => text.find(|letter| is_blank(letter) || is_sign(letter)).unwrap_or(text.len()),
        };
        text.get(..length).unwrap_or_default()
    }

    fn next(&mut self) -> &'a str {
        let token = self.peek();
        self.rest = self.rest.trim_start_matches(is_blank).get(token.len()..).unwrap_or_default();
        token
    }
}

const fn is_blank(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\r' | '\n')
}

const fn is_sign(letter: char) -> bool {
    matches!(letter, '=' | '!' | '(' | ')' | ',' | '<' | '>')
}

fn is_word(token: &str) -> bool {
    token.chars().next().is_some_and(|letter| !is_sign(letter))
}

fn begins_term(token: &str) -> bool {
    is_word(token) || token == "!"
}

fn term(tokens: &mut Tokens<'_>) -> Result<Term, String> {
    let negated = tokens.peek() == "!";
    if negated {
        tokens.next();
    }
    let key = tokens.next();
    if !is_word(key) {
        return Err(format!("found '{key}', expected: identifier"));
    }
    fits("<nil>", key, &names::qualified(key))?;
    let test = match tokens.peek() {
        _ if negated => Test::Missing,
        "" | "," => Test::Exists,
        _ => comparison(key, tokens)?,
    };
    Ok(Term { subject: Subject::Label(key.into()), test })
}

fn comparison(key: &str, tokens: &mut Tokens<'_>) -> Result<Test, String> {
    let operator = tokens.next();
    let values = match operator {
        "in" | "notin" => set(tokens)?,
        "=" | "==" | "!=" | ">" | "<" => BTreeSet::from([one(tokens)?]),
        other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
    };
    let wanted = "for 'Gt', 'Lt' operators, the value must be an integer";
    let number = |value: &str| value.parse().map_err(|_| format!("values[0]: Invalid value: {value:?}: {wanted}"));
    let limit = if matches!(operator, ">" | "<") { values.first().copied().map(number).transpose()? } else { None };
    for (index, value) in values.iter().enumerate() {
        fits(&format!("values[{index}][{key}]"), value, &names::label_value(value))?;
    }
    let values = || values.iter().map(|value| (*value).to_owned()).collect();
    Ok(match (operator, limit) {
        (">", Some(limit)) => Test::Above(limit),
        ("<", Some(limit)) => Test::Below(limit),
        ("notin" | "!=", _) => Test::NotIn(values()),
        _ => Test::In(values()),
    })
}

/// A value, possibly empty.
fn one<'a>(tokens: &mut Tokens<'a>) -> Result<&'a str, String> {
    if matches!(tokens.peek(), "" | ",") {
        return Ok("");
    }
    let value = tokens.next();
    if is_word(value) { Ok(value) } else { Err(format!("found '{value}', expected: identifier")) }
}

/// Values in parentheses, some possibly empty.
fn set<'a>(tokens: &mut Tokens<'a>) -> Result<BTreeSet<&'a str>, String> {
    let open = tokens.next();
    if open != "(" {
        return Err(format!("found '{open}' expected: '('"));
    }
    let mut values = BTreeSet::new();
    loop {
        let value = if is_word(tokens.peek()) { tokens.next() } else { "" };
        values.insert(value);
        match tokens.next() {
            "," => {}
            ")" => return Ok(values),
            other => return Err(format!("found '{other}', expected: ',' or ')'")),
        }
    }
}

fn fits(field: &str, value: &str, wrong: &[String]) -> Result<(), String> {
    if wrong.is_empty() { Ok(()) } else { Err(format!("{field}: Invalid value: {value:?}: {}", wrong.join("; "))) }
}
