//! How a command reaches the API server: single requests, each with a deadline, and a watch.

use std::{env, mem, time::Duration};

use http::StatusCode;
use serde_json::Value;

use super::Ended;
use crate::{
    api::{self, AccessError, Answered, Client, Cluster, Place, Request, Watch, Watching},
    cli::{ClusterFlags, ConfigFlags},
    config::Config,
    console::{complain, refuse},
    election::{record::LeaseRecord, writes::LeaseWrite},
    environment::{LEASE, NAMESPACE},
    exit,
    loading::{Loaded, Purpose},
    request::{Answer, RequestError, WatchEnd},
    words::one_line,
};

/// For one request, and for credentials: people wait. A webhook may take as long.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// Leases per page, because a reply's length is bounded; kubectl asks for as many.
const PAGE: &str = "100";
/// A dead watch goes unnoticed for this long.
pub(super) const WATCH: Duration = Duration::from_secs(60);

/// Which Leases of a namespace are meant.
#[derive(Clone, Copy, Debug)]
pub(super) enum Which<'a> {
    /// Those with these labels.
    Selected(&'a str),
    /// The one of this name. A right that is narrowed to its name suffices.
    Named(&'a str),
}

impl Which<'_> {
    fn parameter(self) -> (&'static str, String) {
        match self {
            Self::Selected(selector) => ("labelSelector", selector.into()),
            Self::Named(name) => ("fieldSelector", format!("metadata.name={name}")),
        }
    }
}

/// Has a command that people wait for look at Leases, with the configuration and the namespace; returns the exit code.
pub(super) fn look(flags: &ConfigFlags, needs_name: bool, ask: impl AsyncFnOnce(&Config, &Access, &str) -> Ended) -> Ended {
    let Loaded { config, notes, .. } = super::load(flags, &[], Purpose::Look)?;
    if needs_name && config.lease.name.is_empty() {
        return Err(refuse(exit::INVALID, "which Lease? Name it (a status may also select some by their labels with -l)"));
    }
    super::warn(&notes);
    let refused = |error: AccessError| refuse(error.exit_code(), &one_line(&error));
    super::block_on(async {
        let access =
            Access::open(&flags.cluster, flags.cluster.request_timeout.unwrap_or(TIMEOUT), TIMEOUT).await.map_err(refused)?;
        let namespace = access.namespace(&config.lease.namespace).map_err(refused)?;
        ask(&config, &access, namespace).await
    })
    .unwrap_or_else(|error| Err(refuse(exit::INTERNAL, &format!("the API server cannot be asked: {error}"))))
}

/// For a command about the Lease `name`. Inside a workload it is by default the one under which that runs, named as it is: that of
/// one slot.
pub(super) fn on_lease(name: Option<String>, flags: &ConfigFlags) -> ConfigFlags {
    let mut flags = ConfigFlags { lease_argument: name, ..flags.clone() };
    let is_set = ["lease.prefix", "lease.slots"].into_iter().any(|path| sets(&flags, path));
    let is_named = is_set || names_one(&flags) || flags.slots.is_some();
    let is_elsewhere = flags.namespace.is_some() || sets(&flags, "lease.namespace");
    if let (false, Ok(name), Ok(namespace)) = (is_named, env::var(LEASE), env::var(NAMESPACE)) {
        flags.lease_argument = Some(name);
        if !is_elsewhere {
            flags.namespace = Some(namespace);
        }
        flags.set.push("lease.prefix=".into());
    }
    flags
}

/// Returns true if these flags name one Lease, beside what the configuration says.
pub(super) fn names_one(flags: &ConfigFlags) -> bool {
    flags.lease_argument.is_some() || flags.lease.is_some() || sets(flags, "lease.name")
}

fn sets(flags: &ConfigFlags, path: &str) -> bool {
    flags.set.iter().any(|set| set.split_once('=').is_some_and(|(key, _)| key == path))
}

/// A connection to a cluster for one command.
pub(super) struct Access {
    pub(super) cluster: Cluster,
    client: Client,
}

impl Access {
    /// Finds the cluster and gets credentials; contacts nothing but a credential plugin. `timeout` is for each request, `patience`
    /// for a plugin that prompts nobody.
    pub(super) async fn open(which: &ClusterFlags, timeout: Duration, patience: Duration) -> Result<Self, AccessError> {
        let found = Cluster::discover(which.kubeconfig.as_deref(), which.context.as_deref())?;
        let groups = Some(which.groups.clone()).filter(|groups| !groups.is_empty());
        let cluster = found.acting_as(which.user.clone(), groups);
        let access = api::Access::of(&cluster, timeout, patience);
        access.dial(true).await?;
        Ok(Self { cluster, client: Client::new(access, timeout) })
    }

    /// Says why there is no answer, and returns the exit code. The selector is the only part of these requests that can be invalid.
    pub(super) fn complain(&self, error: &RequestError, has_selector: bool) -> u8 {
        if has_selector && error.status == Some(StatusCode::BAD_REQUEST.as_u16()) {
            return refuse(exit::INVALID, &format!("--selector: {}", said(error)));
        }
        refuse(exit_code(error), &format!("{} ({}): {}", self.cluster.url(), self.cluster.source(), said(error)))
    }

    /// Says which cluster is changed.
    pub(super) fn announce(&self, what: &str) {
        complain(&format!("{what} at {} ({})", self.cluster.url(), self.cluster.source()));
    }

    /// `wanted`, or the discovered namespace if that is empty.
    pub(super) fn namespace<'a>(&'a self, wanted: &'a str) -> Result<&'a str, AccessError> {
        if wanted.is_empty() { self.cluster.namespace() } else { Ok(wanted) }
    }

    /// Reads a Lease. `None` if there is no Lease of that name.
    pub(super) async fn lease(&self, namespace: &str, name: &str) -> Result<Option<LeaseRecord>, RequestError> {
        let answered = self.send(&Request::get(&Place::lease(namespace, name))).await;
        if answered.answer == Answer::NotFound {
            return Ok(None);
        }
        let lease = LeaseRecord::read(answered.object()?.into());
        lease.map(Some).ok_or_else(|| "the API server's answer is not a Lease of this name".into())
    }

    /// Says so if there is no such namespace. A reply about a Lease does not tell that. Most users may not ask.
    pub(super) async fn lacks_namespace(&self, namespace: &str) -> Option<String> {
        let is_absent = self.send(&Request::get(&Place::namespace(namespace))).await.answer == Answer::NotFound;
        is_absent.then(|| format!("there is no namespace {namespace}"))
    }

    /// All of these Leases of a namespace, and the version as of which they are all.
    pub(super) async fn leases(&self, namespace: &str, which: Which<'_>) -> Result<(Vec<LeaseRecord>, String), RequestError> {
        let (all, (key, selector)) = (Place::lease(namespace, ""), which.parameter());
        // A page is read as one object.
        let place = Place { kind: String::new(), ..Place::clone(&all) };
        let (mut leases, mut next, mut is_again) = (Vec::new(), String::new(), false);
        let no_list = || RequestError::from("the API server's answer is not a list of Leases");
        loop {
            let request = Request::get(&place).with(&[("limit", PAGE), ("continue", &next), (key, &selector)]);
            let mut page = match self.send(&request).await.object() {
                // The server has forgotten the version of the first page.
                Err(error) if error.status == Some(410) && !next.is_empty() && !mem::replace(&mut is_again, true) => {
                    leases.clear();
                    next.clear();
                    continue;
                }
                page => page?,
            };
            let items = match page.get_mut("items").map(Value::take) {
                Some(Value::Array(items)) if items.iter().all(|lease| all.has(lease)) => items,
                Some(_) | None => return Err(no_list()),
            };
            let records: Option<Vec<_>> = items.into_iter().map(|lease| LeaseRecord::read(lease.into())).collect();
            leases.extend(records.ok_or_else(no_list)?);
            let metadata = |name| page.pointer(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            let last = mem::replace(&mut next, metadata("/metadata/continue"));
            if !next.is_empty() && next == last {
                return Err("the API server's list of Leases does not end: it names the same next page again".into());
            }
            if next.is_empty() {
                return Ok((leases, metadata("/metadata/resourceVersion")));
            }
        }
    }

    /// Watches the Leases after `version`. A live server ends the watch after [`WATCH`].
    pub(super) async fn watch(&self, namespace: &str, which: Which<'_>, version: String) -> Result<Watching, WatchEnd> {
        let places = [Place::lease(namespace, "")].into();
        self.client.watch(Watch { places, selector: which.parameter(), resource_version: Some(version), span: WATCH }).await
    }

    /// Writes a Lease as it was read; if anything has changed since then, the server refuses.
    pub(super) async fn write(&self, namespace: &str, name: &str, write: &LeaseWrite) -> Result<(), RequestError> {
        self.send(&Request::lease(&Place::lease(namespace, name), write)).await.object().map(drop)
    }

    /// Sends a request once, and once more with new credentials if the last ones are refused.
    pub(super) async fn send(&self, request: &Request) -> Answered {
        let answered = self.client.send(request).await;
        if needs_credentials(&answered) { self.client.send(request).await } else { answered }
    }
}

fn needs_credentials(answered: &Answered) -> bool {
    answered.said.status == Some(StatusCode::UNAUTHORIZED.as_u16())
}

/// Why there is no answer, as people read it.
pub(super) fn said(RequestError { status, words }: &RequestError) -> String {
    match status.and_then(|status| StatusCode::from_u16(status).ok()) {
        Some(status) => format!("the API server answered {status}: {words}"),
        None => words.clone(),
    }
}

/// The exit code of a command that this ends.
pub(super) fn exit_code(error: &RequestError) -> u8 {
    match error.status {
        _ if error.is_denied() => exit::NOT_PERMITTED,
        // An admission plugin, or the API server itself, refuses what the rights allow.
        Some(400 | 422) => exit::INVALID,
        Some(_) | None => exit::UNAVAILABLE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_told_why_by_its_exit_code() {
        let codes = [Some(401), Some(403), Some(422), Some(500), Some(200), None]
            .map(|status| exit_code(&RequestError { status, words: "no".into() }));

        assert_eq!(codes, [77, 77, 78, 69, 69, 69]);
    }
}
