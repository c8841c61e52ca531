//! The options of a LIST or watch: which version of what, and how much of it.
//!
//! Owns their rules, and the continue tokens of partial lists.

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use serde::{Deserialize, Serialize};

use super::{
    lease,
    request::Request,
    selector::Selector,
    status::{Cause, Status},
    store::Store,
};

/// Which part of a list is asked for.
pub(super) struct Part {
    /// Exactly this version; none for the newest.
    pub(super) version: Option<u64>,
    /// Where it begins, as a path; empty for the beginning.
    pub(super) start: String,
    /// How many items, if limited.
    pub(super) limit: Option<usize>,
}

/// Where a list continues, encoded as upstream does.
#[derive(Serialize, Deserialize)]
struct Continuation {
    v: String,
    rv: u64,
    start: String,
}

const TOKEN_VERSION: &str = "meta.k8s.io/v1";

/// The token that continues this version of a list after the Lease at `path`.
pub(super) fn continue_after(path: &str, version: u64) -> String {
    let continuation = Continuation { v: TOKEN_VERSION.into(), rv: version, start: format!("/{path}\0") };
    BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(&continuation).unwrap_or_default())
}

fn read(token: &str) -> Result<Continuation, String> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(token).map_err(|why| format!(": {why}"))?;
    let continuation: Continuation = serde_json::from_slice(&bytes).map_err(|why| format!(": {why}"))?;
    match &continuation {
        Continuation { v, .. } if v != TOKEN_VERSION => Err(format!(": server does not recognize this encoded version {v}")),
        Continuation { rv: 0, v, .. } => Err(format!(": incorrect encoded start resourceVersion (version {v})")),
        Continuation { start, v, .. } if start.is_empty() => Err(format!(": encoded start key empty (version {v})")),
        Continuation { .. } => Ok(continuation),
    }
}

impl Request {
    pub(super) fn selector(&self) -> Result<Selector, Status> {
        Selector::parse(self.query.text("labelSelector"), self.query.text("fieldSelector"))
    }

    /// The `resourceVersion` parameter; 0 if absent. The error is Go's message.
    pub(super) fn version(&self) -> Result<u64, String> {
        match self.query.text("resourceVersion") {
            "" => Ok(0),
            text => lease::number(text).map_err(|why| format!("resourceVersion: Invalid value: {text:?}: {why}")),
        }
    }

    /// Which part of the list is requested, given the present state of `store`.
    pub(super) fn part(&self, store: &Store) -> Result<Part, Status> {
        let limit = self.query.number("limit")?;
        self.query.number("timeoutSeconds")?;
        self.check_list_options()?;
        let limit = limit.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0);
        let asked = self.version().map_err(|why| Status::bad_request(format!("invalid resource version: {why}")))?;
        let token = self.query.text("continue");
        let part = if !token.is_empty() {
            if asked != 0 {
                return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
            }
            let from = read(token)
                .map_err(|why| Status::bad_request(format!("invalid continue token: continue key is not valid{why}")))?;
            Part { version: Some(from.rv), start: from.start.trim_start_matches('/').into(), limit }
        } else {
            let exact = match self.query.text("resourceVersionMatch") {
                "Exact" => true,
                "" => limit.is_some() && asked != 0,
                _ => false,
            };
            let any = self.query.text("resourceVersion") == "0";
            Part { version: exact.then_some(asked), start: String::new(), limit: limit.filter(|_| !any) }
        };
        Self::reached(part.version.unwrap_or(asked), store)?;
        Ok(part)
    }

    fn check_list_options(&self) -> Result<(), Status> {
        let mut causes = Vec::new();
        let (asked, version) = (self.query.text("resourceVersionMatch"), self.query.text("resourceVersion"));
        if !asked.is_empty() && version.is_empty() {
            let rule = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            causes.push(Cause::forbidden("resourceVersionMatch", rule));
        }
        if !asked.is_empty() && !self.query.text("continue").is_empty() {
            let rule = "resourceVersionMatch is forbidden when continue is provided";
            causes.push(Cause::forbidden("resourceVersionMatch", rule));
        }
        if !matches!(asked, "" | "Exact" | "NotOlderThan") {
            causes.push(Cause::unsupported("resourceVersionMatch", asked, "\"\", \"Exact\", \"NotOlderThan\""));
        }
        if asked == "Exact" && version == "0" {
            let rule = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            causes.push(Cause::forbidden("resourceVersionMatch", rule));
        }
        if self.query.has("sendInitialEvents") {
            causes.push(Cause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        if causes.is_empty() { Ok(()) } else { Err(Status::invalid_options("ListOptions", &causes)) }
    }

    pub(super) fn check_watch_options(&self) -> Result<(), Status> {
        let mut causes = Vec::new();
        let asked = self.query.text("resourceVersionMatch");
        let initial = self.query.has("sendInitialEvents");
        if initial && asked != "NotOlderThan" {
            let rule = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            causes.push(Cause::forbidden("resourceVersionMatch", rule));
        }
        if !asked.is_empty() && !initial {
            let rule = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            causes.push(Cause::forbidden("resourceVersionMatch", rule));
        }
        if !matches!(asked, "" | "NotOlderThan") {
            causes.push(Cause::unsupported("resourceVersionMatch", asked, "\"NotOlderThan\""));
        }
        if causes.is_empty() { Ok(()) } else { Err(Status::invalid_options("ListOptions", &causes)) }
    }

    pub(super) fn reached(asked: u64, store: &Store) -> Result<(), Status> {
        if asked > store.version() {
            return Err(Status::too_new(asked, store.version()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_goes_on_where_it_stopped() {
        let token = continue_after("default/a", 7);

        let from = read(&token).unwrap();

        assert_eq!((from.rv, from.start.as_str()), (7, "/default/a\0"));
        assert!(read("abc").is_err());
    }
}
