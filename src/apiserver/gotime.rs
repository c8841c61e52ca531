//! The times of the API, parsed as Go parses them.
//!
//! Owns the two layouts: RFC 3339 with exactly six digits of fraction (`MicroTime`) and RFC 3339 in seconds (`Time`).
//! Times are sent in UTC with that many digits, whatever zone they arrived in; Go's zero time is sent as null. Errors use Go's own
//! wording, which clients show.

use jiff::{SignedDuration, Timestamp, civil::DateTime, tz::TimeZone};

/// Go's value of a time that was never set.
const ZERO: DateTime = DateTime::constant(1, 1, 1, 0, 0, 0, 0);

/// The precision of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precision {
    /// `Time`: sent in whole seconds, accepted with any fraction.
    Seconds,
    /// `MicroTime`: exactly six digits, sent and accepted.
    Micros,
}

impl Precision {
    const fn layout(self) -> &'static str {
        match self {
            Self::Seconds => "2006-01-02T15:04:05Z07:00",
            Self::Micros => "2006-01-02T15:04:05.000000Z07:00",
        }
    }
}

/// `text` in UTC at this precision; none for Go's zero time.
///
/// # Errors
/// Go's message if it does not fit the layout.
pub(super) fn normalise(text: &str, precision: Precision) -> Result<Option<String>, String> {
    let mut reader = Reader { all: text, rest: text, layout: precision.layout() };
    let year = reader.number(4, 4, "2006")?;
    reader.literal("-")?;
    let month = reader.number(2, 2, "01")?;
    reader.within(month, 1, 12, "month")?;
    reader.literal("-")?;
    let day = reader.number(2, 2, "02")?;
    reader.literal("T")?;
    let hour = reader.number(1, 2, "15")?;
    reader.within(hour, 0, 23, "hour")?;
    reader.literal(":")?;
    let minute = reader.number(2, 2, "04")?;
    reader.within(minute, 0, 59, "minute")?;
    reader.literal(":")?;
    let second = reader.number(2, 2, "05")?;
    reader.within(second, 0, 59, "second")?;
    let nanos = reader.fraction(precision)?;
    let offset = reader.zone()?;
    if !reader.rest.is_empty() {
        return Err(format!("parsing time {:?}: extra text: {:?}", reader.all, reader.rest));
    }
    let short = |number: i32| i16::try_from(number).unwrap_or(i16::MAX);
    let byte = |number: i32| i8::try_from(number).unwrap_or(i8::MAX);
    let civil = DateTime::new(short(year), byte(month), byte(day), byte(hour), byte(minute), byte(second), nanos);
    let out_of_range = |_| format!("parsing time {text:?}: day out of range");
    let civil = civil.and_then(|civil| civil.checked_sub(offset)).map_err(out_of_range)?;
    Ok((civil != ZERO).then(|| format(civil, precision)))
}

/// A wall-clock instant as `Time` writes it.
pub(super) fn seconds(wall_micros: i64) -> String {
    text(wall_micros, Precision::Seconds).unwrap_or_default()
}

/// Microseconds since 1970 as a time of this precision, if the years suffice.
pub(super) fn text(micros: i64, precision: Precision) -> Option<String> {
    Timestamp::from_microsecond(micros).ok().map(|instant| format(TimeZone::UTC.to_datetime(instant), precision))
}

/// A normalised time in microseconds since 1970; none for anything else.
pub(super) fn micros(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(Timestamp::as_microsecond)
}

fn format(civil: DateTime, precision: Precision) -> String {
    let whole = format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
        civil.year(),
        civil.month(),
        civil.day(),
        civil.hour(),
        civil.minute(),
        civil.second()
    );
    match precision {
        Precision::Seconds => whole + "Z",
        Precision::Micros => format!("{whole}.{:06}Z", civil.subsec_nanosecond() / 1_000),
    }
}

struct Reader<'a> {
    all: &'a str,
    rest: &'a str,
    layout: &'static str,
}

impl Reader<'_> {
    fn refuse(&self, element: &str) -> String {
        format!("parsing time {:?} as {:?}: cannot parse {:?} as {element:?}", self.all, self.layout, self.rest)
    }

    fn literal(&mut self, expected: &'static str) -> Result<(), String> {
        self.rest = self.rest.strip_prefix(expected).ok_or_else(|| self.refuse(expected))?;
        Ok(())
    }

    fn number(&mut self, least: usize, most: usize, element: &'static str) -> Result<i32, String> {
        let digits = self.rest.bytes().take(most).take_while(u8::is_ascii_digit).count();
        if digits < least {
            return Err(self.refuse(element));
        }
        let (number, rest) = self.rest.split_at(digits);
        let number = number.parse().map_err(|_| self.refuse(element))?;
        self.rest = rest;
        Ok(number)
    }

    fn within(&self, number: i32, low: i32, high: i32, what: &str) -> Result<(), String> {
        if (low..=high).contains(&number) {
            return Ok(());
        }
        Err(format!("parsing time {:?}: {what} out of range", self.all))
    }

    /// Nanoseconds.
    fn fraction(&mut self, precision: Precision) -> Result<i32, String> {
        let Some(digits) = self.rest.strip_prefix(['.', ',']) else {
            return match precision {
                Precision::Seconds => Ok(0),
                Precision::Micros => Err(self.refuse(".000000")),
            };
        };
        let there = digits.bytes().take_while(u8::is_ascii_digit).count();
        let taken = match precision {
            Precision::Seconds => there,
            Precision::Micros => 6,
        };
        if there < taken.max(1) {
            return Err(self.refuse(".000000"));
        }
        let (digits, rest) = digits.split_at(taken);
        self.rest = rest;
        let nanos = digits.bytes().chain(std::iter::repeat(b'0')).take(9);
        Ok(nanos.fold(0, |sum, digit| sum * 10 + i32::from(digit - b'0')))
    }

    /// The offset from UTC.
    fn zone(&mut self) -> Result<SignedDuration, String> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(SignedDuration::ZERO);
        }
        let bytes = self.rest.as_bytes();
        let [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2, ..] = bytes else { return Err(self.refuse("Z07:00")) };
        if ![h1, h2, m1, m2].iter().all(|digit| digit.is_ascii_digit()) {
            return Err(self.refuse("Z07:00"));
        }
        let two = |high: u8, low: u8| i32::from(high - b'0') * 10 + i32::from(low - b'0');
        let (hours, minutes) = (two(*h1, *h2), two(*m1, *m2));
        self.within(hours, 0, 24, "time zone offset hour")?;
        self.within(minutes, 0, 60, "time zone offset minute")?;
        let ahead = SignedDuration::from_mins((hours * 60 + minutes).into());
        self.rest = self.rest.get(6..).unwrap_or_default();
        Ok(if *sign == b'-' { -ahead } else { ahead })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_micro_time_comes_out_in_utc_with_six_digits() {
        let normal = normalise("2024-02-29T12:30:00.000007+02:30", Precision::Micros);

        assert_eq!(normal.unwrap().as_deref(), Some("2024-02-29T10:00:00.000007Z"));
    }

    #[test]
    fn a_micro_time_has_exactly_six_digits_of_fraction() {
        let none = normalise("2024-02-29T12:30:00Z", Precision::Micros);
        let three = normalise("2024-02-29T12:30:00.123Z", Precision::Micros);
        let nine = normalise("2024-02-29T12:30:00.123456789Z", Precision::Micros);

        assert_eq!(
            none.unwrap_err(),
            r#"parsing time "2024-02-29T12:30:00Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#
        );
        assert!(three.unwrap_err().ends_with(r#"cannot parse ".123Z" as ".000000""#));
        assert!(nine.unwrap_err().ends_with(r#"cannot parse "789Z" as "Z07:00""#));
    }

    #[test]
    fn a_time_drops_its_fraction() {
        let normal = normalise("2024-02-29T12:30:59.999Z", Precision::Seconds);

        assert_eq!(normal.unwrap().as_deref(), Some("2024-02-29T12:30:59Z"));
    }

    #[test]
    fn a_date_that_does_not_exist_is_refused() {
        let refused = normalise("2023-02-29T00:00:00.000000Z", Precision::Micros);

        assert_eq!(refused.unwrap_err(), r#"parsing time "2023-02-29T00:00:00.000000Z": day out of range"#);
    }

    #[test]
    fn words_and_emptiness_are_refused() {
        assert!(normalise("", Precision::Micros).unwrap_err().ends_with(r#"cannot parse "" as "2006""#));
        assert!(normalise("now", Precision::Micros).unwrap_err().ends_with(r#"cannot parse "now" as "2006""#));
    }
}
