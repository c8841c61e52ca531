//! Values that are written as text in their own form: a percentage, a signal, an address.

use std::{
    borrow::Cow,
    fmt::{self, Display, Formatter},
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

const PERCENT: u32 = 10_000;

/// A bound on the error of a clock's rate, in parts per million. It is written as a percentage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Drift(pub u32);

impl Default for Drift {
    fn default() -> Self {
        Self(PERCENT)
    }
}

/// A signal by its number. It is written by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signal(pub i32);

impl Signal {
    /// Sent with every stop signal, so that a stopped process receives that.
    pub const CONT: Self = Self(libc::SIGCONT);
    /// The end of every stop.
    pub const KILL: Self = Self(libc::SIGKILL);
    /// For what is to be frozen.
    pub const STOP: Self = Self(libc::SIGSTOP);
    /// The default of `workload.stop.signal`.
    pub const TERM: Self = Self(libc::SIGTERM);

    /// SIGRTMIN and SIGRTMAX of glibc, which most programs use. SIGRTMIN of musl, which is in the static binary, is one higher.
    pub(crate) const REAL_TIME: RangeInclusive<i32> = 34..=64;

    /// Signals that report a fault of the process itself. tenure neither blocks nor forwards its own.
    pub(crate) const FAULTS: [i32; 7] =
        [libc::SIGFPE, libc::SIGILL, libc::SIGSEGV, libc::SIGBUS, libc::SIGABRT, libc::SIGTRAP, libc::SIGSYS];

    /// Returns true if it does nothing to a process that has no handler for it.
    pub fn is_ignored_by_default(self) -> bool {
        [libc::SIGCHLD, libc::SIGCONT, libc::SIGURG, libc::SIGWINCH].contains(&self.0)
    }

    /// Returns true if `signals.rewrite` may name it: all but SIGCHLD, the faults, and signals that cannot be caught. What init does
    /// with a signal stands in `supervision/agent/requests.rs`.
    pub fn is_forwardable(self) -> bool {
        let own = [libc::SIGCHLD, libc::SIGKILL, libc::SIGSTOP];
        !own.contains(&self.0) && !Self::FAULTS.contains(&self.0)
    }

    /// Reads `SIGTERM` or `TERM`, and `SIGRTMIN+3` or `RTMAX-1`.
    pub(crate) fn parse(written: &str) -> Result<Self, String> {
        let refused = || format!("{written:?} is not the name of a signal: write one such as SIGTERM or SIGRTMIN+3");
        let name = written.strip_prefix("SIG").unwrap_or(written);
        if let Some(signal) = real_time(name) {
            return Ok(signal);
        }
        let signal: nix::sys::signal::Signal = format!("SIG{name}").parse().map_err(|_| refused())?;
        Ok(Self(signal as i32))
    }

    /// A pattern for [`Self::parse`]. It also allows some real-time signals that are too far from either end.
    fn pattern() -> String {
        let names = nix::sys::signal::Signal::iterator().map(|signal| signal.as_str().trim_start_matches("SIG"));
        let names = names.collect::<Vec<_>>().join("|");
        format!(r"^(SIG)?({names}|RTMIN(\+[0-9]+)?|RTMAX(-[0-9]+)?)$")
    }

    /// Its name, such as `SIGTERM` or `SIGRTMIN+3`.
    pub(crate) fn name(self) -> String {
        match (nix::sys::signal::Signal::try_from(self.0), self.0 - Self::REAL_TIME.start()) {
            (Ok(signal), _) => signal.as_str().into(),
            (Err(_), 0) => "SIGRTMIN".into(),
            (Err(_), offset) if Self::REAL_TIME.contains(&self.0) => format!("SIGRTMIN+{offset}"),
            (Err(_), _) => format!("signal {}", self.0),
        }
    }
}

/// A real-time signal by its distance from either end.
fn real_time(name: &str) -> Option<Signal> {
    let distance = |text: &str, sign: char| match text.strip_prefix(sign) {
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse::<i32>().ok(),
        None if text.is_empty() => Some(0),
        Some(_) | None => None,
    };
    let number = match (name.strip_prefix("RTMIN"), name.strip_prefix("RTMAX")) {
        (Some(rest), _) => Signal::REAL_TIME.start().checked_add(distance(rest, '+')?)?,
        (None, Some(rest)) => Signal::REAL_TIME.end().checked_sub(distance(rest, '-')?)?,
        (None, None) => return None,
    };
    Signal::REAL_TIME.contains(&number).then_some(Signal(number))
}

/// A value that is written as text.
pub(super) trait Text: Sized {
    /// Reads it. The error is more precise than that of the type.
    fn read(written: &str) -> Result<Self, String>;
    /// Writes it in the form that is read.
    fn written(&self) -> String;
}

/// Puts these types into a configuration by their text.
macro_rules! serialized_as_text {
    ($($type:ty),+) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.written().serialize(serializer)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                super::scalars::text(deserializer)
            }
        }
    )+};
}
pub(super) use serialized_as_text;

serialized_as_text!(Drift, Signal);

impl Text for Drift {
    /// Reads `1%` or `0.05%`.
    fn read(written: &str) -> Result<Self, String> {
        let refused = || format!("{written:?} is not a percentage: write one with at most four decimals, such as 1% or 0.5%");
        let number = written.strip_suffix('%').ok_or_else(refused)?.trim();
        let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(decimals) || decimals.len() > 4 {
            return Err(refused());
        }
        let decimals: u32 = format!("{decimals:0<4}").parse().map_err(|_| refused())?;
        let whole: u32 = whole.parse().map_err(|_| refused())?;
        whole.checked_mul(PERCENT).and_then(|whole| whole.checked_add(decimals)).map(Self).ok_or_else(refused)
    }

    fn written(&self) -> String {
        self.to_string()
    }
}

impl Display for Drift {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (self.0 / PERCENT, self.0 % PERCENT) {
            (whole, 0) => write!(f, "{whole}%"),
            (whole, decimals) => write!(f, "{whole}.{}%", format!("{decimals:04}").trim_end_matches('0')),
        }
    }
}

impl JsonSchema for Drift {
    fn schema_name() -> Cow<'static, str> {
        "Drift".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]{1,4})?\s*%$", "examples": ["1%", "0.5%"] })
    }
}

impl Text for Signal {
    fn read(written: &str) -> Result<Self, String> {
        Self::parse(written)
    }

    fn written(&self) -> String {
        self.name()
    }
}

impl JsonSchema for Signal {
    fn schema_name() -> Cow<'static, str> {
        "Signal".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": Self::pattern(), "examples": ["SIGTERM", "HUP", "SIGRTMIN+3"] })
    }
}

impl Text for SocketAddr {
    fn read(written: &str) -> Result<Self, String> {
        let refused = |_| format!("{written:?} is not an address and a port: write both, such as 0.0.0.0:8080 or \"[::]:8080\"");
        written.parse().map_err(refused)
    }

    fn written(&self) -> String {
        self.to_string()
    }
}

impl Text for IpAddr {
    fn read(written: &str) -> Result<Self, String> {
        written.parse().map_err(|_| format!("{written:?} is not an IP address: write one such as 127.0.0.1, not a name"))
    }

    fn written(&self) -> String {
        self.to_string()
    }
}

/// Reads a text.
pub(super) fn text<'de, D: Deserializer<'de>, T: Text>(deserializer: D) -> Result<T, D::Error> {
    T::read(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

/// A text or nothing, in a field.
pub(super) struct Maybe;

impl Maybe {
    pub(super) fn serialize<S: Serializer>(value: &Option<impl Text>, serializer: S) -> Result<S::Ok, S::Error> {
        value.as_ref().map(Text::written).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>, T: Text>(deserializer: D) -> Result<Option<T>, D::Error> {
        Option::<String>::deserialize(deserializer)?.map(|written| T::read(&written)).transpose().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drift_is_a_percentage_of_up_to_four_decimals() {
        for (written, parts) in [("1%", 10_000), ("0.5%", 5_000), ("0.0001%", 1), ("12.34 %", 123_400), ("0%", 0)] {
            assert_eq!(Drift::read(written), Ok(Drift(parts)), "{written}");
        }
        for written in ["1", "", "%", ".5%", "1.%", "-1%", "1.00001%", "1e2%", "99999999%", "+1%"] {
            assert!(Drift::read(written).is_err(), "{written}");
        }
    }

    #[test]
    fn a_drift_is_written_as_it_is_read() {
        for parts in [0, 1, 100, 5_000, 10_000, 123_456] {
            assert_eq!(Drift::read(&Drift(parts).to_string()), Ok(Drift(parts)));
        }
    }

    #[test]
    fn a_real_time_signal_is_counted_from_either_end_as_docker_and_systemd_do() {
        for (written, number) in [("SIGRTMIN", 34), ("SIGRTMIN+3", 37), ("RTMIN+30", 64), ("SIGRTMAX", 64), ("RTMAX-14", 50)] {
            let signal = Signal::parse(written).unwrap();
            assert_eq!(signal, Signal(number), "{written}");
            assert_eq!(Signal::parse(&signal.name()), Ok(signal), "{}", signal.name());
        }
        for written in
            ["RTMIN+31", "RTMAX-31", "RTMIN-1", "RTMAX+1", "RTMIN+", "RTMIN++1", "RTMIN+-1", "RTMIN3", "RTMIN+99999999999"]
        {
            assert!(Signal::parse(written).is_err(), "{written}");
        }
    }

    #[test]
    fn what_means_init_itself_is_not_passed_on() {
        let kept =
            (1..=libc::SIGRTMAX()).map(Signal).filter(|signal| !signal.is_forwardable()).map(Signal::name).collect::<Vec<_>>();
        let expected = ["SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGSEGV", "SIGCHLD", "SIGSTOP", "SIGSYS"];
        assert_eq!(kept, expected);
    }

    #[test]
    fn a_signal_has_its_name_with_or_without_sig() {
        assert_eq!(Signal::parse("SIGUSR1"), Signal::parse("USR1"));
        assert_eq!(Signal::parse("TERM").map(Signal::name), Ok("SIGTERM".into()));
        for written in ["", "SIG", "15", "sigterm", "SIGNONE", "SIGSIGTERM", "TERM+1"] {
            assert!(Signal::parse(written).is_err(), "{written}");
        }
    }
}
