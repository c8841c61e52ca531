//! Words for people: errors and what others wrote, on one line and without characters that control a terminal; enums of words.

use std::{borrow::Cow, error::Error, fmt::Write as _};

/// The longest text of others in a line of the log, in bytes. The API server takes as much in an Event.
const TEXT: usize = 1024;

/// An error and its causes on one line. A cause that repeats the text before it is left out: kube's errors often do.
pub fn one_line(error: &(dyn Error + 'static)) -> String {
    let mut line = squeezed(&error.to_string());
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = squeezed(&error.to_string());
        if !line.contains(&text) {
            let _ = write!(line, ": {text}");
        }
        cause = error.source();
    }
    line
}

/// On one line, and [`visible`].
pub(crate) fn squeezed(text: &str) -> String {
    visible(&text.split_whitespace().collect::<Vec<_>>().join(" ")).into_owned()
}

/// Returns a text of others on one line, without the characters that move, colour, reverse or hide a terminal's text.
pub fn visible(text: &str) -> Cow<'_, str> {
    if text.contains(is_unseen) { Cow::Owned(text.chars().map(seen).collect()) } else { Cow::Borrowed(text) }
}

/// Returns what stands for this character of a text of others.
fn seen(c: char) -> char {
    match c {
        c if !is_unseen(c) => c,
        c if c.is_whitespace() => ' ',
        _ => char::REPLACEMENT_CHARACTER,
    }
}

/// Returns true if this character would move, colour, reverse or hide the text around it, or would be no text itself.
pub(crate) fn is_unseen(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let breaks = matches!(c, '\u{2028}' | '\u{2029}');
    let hides = matches!(c,
        '\u{ad}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}'
        | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    turns || breaks || hides || c.is_control()
}

/// Returns a text of others, [`visible`] and of at most [`TEXT`] bytes.
pub(crate) fn bounded(text: &str) -> Cow<'_, str> {
    let line = visible(text);
    if line.len() <= TEXT {
        return line;
    }
    let mut line = line.into_owned();
    line.truncate(line.floor_char_boundary(TEXT - '…'.len_utf8()));
    line.push('…');
    Cow::Owned(line)
}

/// A number of things, with the word for one of them.
pub(crate) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Defines an enum with the word of each variant beside it, as logs, traces and variables have it.
macro_rules! worded {
    ($(#[$of_enum:meta])* $visible:vis enum $name:ident {
        $($(#[$of_variant:meta])* $variant:ident = $word:literal,)+
    }) => {
        $(#[$of_enum])*
        $visible enum $name {
            $($(#[$of_variant])* $variant,)+
        }

        impl $name {
            /// All, in this order.
            #[allow(dead_code, reason = "few are counted")]
            $visible const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// The word for it.
            $visible const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }
    };
}

pub(crate) use worded;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot open: {0}")]
    struct Repeats(#[source] std::io::Error);

    #[derive(Debug, thiserror::Error)]
    #[error("cannot start")]
    struct Names(#[source] Repeats);

    #[test]
    fn nobody_else_writes_on_the_terminal() {
        let error = Names(Repeats(std::io::Error::other("\u{1b}[31mred\u{7}\n\u{202e}der")));

        assert_eq!(one_line(&error), "cannot start: cannot open: \u{fffd}[31mred\u{fffd} \u{fffd}der");
    }

    #[test]
    fn a_text_of_others_has_no_character_that_hides_or_breaks_a_line() {
        let text = "a\u{2028}b\u{200b}c\u{feff}d\u{e0041}e\u{9b}f\tg";

        assert_eq!(bounded(text), "a b\u{fffd}c\u{fffd}d\u{fffd}e\u{fffd}f g");
    }

    #[test]
    fn causes_are_named_once_and_on_one_line() {
        let error = Names(Repeats(std::io::Error::other("line one\n  line two")));

        assert_eq!(one_line(&error), "cannot start: cannot open: line one line two");
    }
}
