//! Faults that a test injects into the traffic of one client.
//!
//! Owns their names and which request gets which. `connection`, `watch` and `door` carry them out.

use std::time::Duration;

use http::Method;

/// What happens to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is carried out after this delay, whether or not the client still waits.
    LateCommit(Duration),
    /// It is carried out at once, and answered after this delay.
    LateReply(Duration),
    /// The connection closes; nothing is carried out.
    DropRequest,
    /// It is carried out; then the connection closes without an answer.
    DropReply,
    /// Nothing is carried out, nothing is answered, the connection stays open.
    BlackHole,
    /// It is carried out and never answered; the connection stays open.
    SwallowReply,
    /// It is answered with this status and not carried out.
    Refuse {
        /// HTTP status code.
        code: u16,
        /// Seconds for a Retry-After header.
        retry_after: Option<u32>,
    },
    /// It is carried out; half of the answer arrives, then the connection closes.
    Truncate,
    /// It is carried out; the answer is a 200 whose body is not JSON.
    Garbage,
}

/// Which requests a fault applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum On {
    /// All, including watches.
    Any,
    /// GET, except watches.
    Reads,
    /// POST, PUT, PATCH and DELETE.
    Writes,
    /// Those with this method, except watches.
    Method(Method),
    /// The start of a watch.
    Watches,
}

/// What happens to a client's watches, including running ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WatchFault {
    /// Nothing.
    #[default]
    None,
    /// They stay open and send nothing more.
    Stall,
    /// They end after this long, again and again.
    Eof(Duration),
    /// They end with an ERROR event of code 410.
    Expired,
    /// Every event is delayed by this much.
    Late(Duration),
    /// They begin with everything in the history, whatever version was asked for.
    Replay,
}

/// The state of the network between one client and the server.
///
/// What is held back is not lost: as with a real partition, it arrives once the link is up again, if the connection still exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// It works.
    #[default]
    Up,
    /// Nothing from the client arrives; what the server sends does arrive.
    RequestsHeld,
    /// Requests arrive and are carried out; nothing that the server sends arrives.
    RepliesHeld,
    /// Nothing arrives either way.
    Cut,
    /// Connections are refused, and those that exist are closed.
    Refused,
}

impl Link {
    pub(super) const fn holds_requests(self) -> bool {
        match self {
            Self::RequestsHeld | Self::Cut => true,
            Self::Up | Self::RepliesHeld | Self::Refused => false,
        }
    }

    pub(super) const fn holds_replies(self) -> bool {
        match self {
            Self::RepliesHeld | Self::Cut => true,
            Self::Up | Self::RequestsHeld | Self::Refused => false,
        }
    }
}

impl On {
    fn covers(&self, method: &Method, watch: bool) -> bool {
        match self {
            Self::Any => true,
            Self::Reads => *method == Method::GET && !watch,
            Self::Writes => *method != Method::GET,
            Self::Method(only) => method == only && !watch,
            Self::Watches => watch,
        }
    }
}

/// One client's faults, in the order of injection: the first that matches a request is applied.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    fault: Fault,
    on: On,
    /// How many more times it applies; none: until it is healed.
    left: Option<u32>,
}

impl Faults {
    pub(super) fn inject(&mut self, fault: Fault, on: On, times: Option<u32>) {
        self.rules.push(Rule { fault, on, left: times });
    }

    pub(super) fn clear(&mut self) {
        self.rules.clear();
    }

    /// The fault for this request; uses it up once.
    pub(super) fn take(&mut self, method: &Method, watch: bool) -> Option<Fault> {
        let place = self.rules.iter().position(|rule| rule.on.covers(method, watch))?;
        let rule = self.rules.get_mut(place)?;
        let fault = rule.fault.clone();
        match &mut rule.left {
            None => {}
            Some(0 | 1) => {
                self.rules.remove(place);
            }
            Some(left) => *left -= 1,
        }
        Some(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_applies_as_often_as_it_was_injected() {
        let mut faults = Faults::default();
        faults.inject(Fault::DropReply, On::Method(Method::PUT), Some(2));
        faults.inject(Fault::BlackHole, On::Writes, None);

        let taken: Vec<_> = (0..4).map(|_| faults.take(&Method::PUT, false)).collect();

        let (dropped, hole) = (Some(Fault::DropReply), Some(Fault::BlackHole));
        assert_eq!(taken, [dropped.clone(), dropped, hole.clone(), hole]);
        assert_eq!(faults.take(&Method::GET, false), None);
    }

    #[test]
    fn a_watch_is_no_read() {
        let mut faults = Faults::default();
        faults.inject(Fault::BlackHole, On::Reads, None);

        assert_eq!(faults.take(&Method::GET, true), None);
        assert_eq!(faults.take(&Method::GET, false), Some(Fault::BlackHole));
    }
}
