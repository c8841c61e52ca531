//! The real server's audit log of who asked what of Leases, in the order of its answers.

use std::{fs, path::Path};

use serde_json::Value;

/// An answered request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Unique for each request.
    pub id: String,
    /// Who asked.
    pub user: String,
    /// `get`, `update`, ...
    pub verb: String,
    /// The answer's status.
    pub status: u64,
    /// holderIdentity in the request, if it carries one.
    pub holder: Option<String>,
    /// resourceVersion in the request, if it carries one.
    pub base: Option<String>,
    /// When it arrived: microseconds since 1970.
    pub asked: i64,
    /// When it was answered: microseconds since 1970.
    pub answered: i64,
    /// The Lease in the answer; null if there is none.
    pub stored: Value,
}

/// The complete requests about one Lease, without dry runs.
pub fn read(log: &Path, namespace: &str, name: &str) -> Vec<Record> {
    let all = read_all(log, namespace, name);
    all.into_iter().filter(|(stage, _)| stage == "ResponseComplete").map(|(_, record)| record).collect()
}

/// The same including requests in progress: a watch is answered long before it is complete.
pub fn read_all(log: &Path, namespace: &str, name: &str) -> Vec<(String, Record)> {
    let text = fs::read_to_string(log).expect("the audit log");
    // The last line may be incomplete.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let lines = whole.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of the audit log"));
    let about = lines.filter(|line| {
        let object = &line["objectRef"];
        let created = &line["requestObject"]["metadata"]["name"];
        let is_tried = line["requestURI"].as_str().is_some_and(|uri| uri.contains("dryRun="));
        !is_tried && object["namespace"] == namespace && (object["name"] == name || created == name)
    });
    about.map(|line| (line["stage"].as_str().unwrap_or_default().to_owned(), record(&line))).collect()
}

fn record(line: &Value) -> Record {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let time = |value: &Value| text(value).parse::<jiff::Timestamp>().expect("a time").as_microsecond();
    Record {
        id: text(&line["auditID"]),
        user: text(&line["user"]["username"]),
        verb: text(&line["verb"]),
        status: line["responseStatus"]["code"].as_u64().unwrap_or_default(),
        holder: line["requestObject"]["spec"]["holderIdentity"].as_str().map(str::to_owned),
        base: line["requestObject"]["metadata"]["resourceVersion"].as_str().map(str::to_owned),
        asked: time(&line["requestReceivedTimestamp"]),
        answered: time(&line["stageTimestamp"]),
        stored: line["responseObject"].clone(),
    }
}
