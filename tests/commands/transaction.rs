//! `tenure apply`, before it asks for anything: what it refuses in a file, and how it names the place.

use std::fmt::Write as _;

use support::Scratch;

use crate::world::{Cluster, tenure, tenure_after};

/// A Transaction with these changes, each on a line of its own.
fn transaction(changes: &[&str]) -> String {
    let mut text = "apiVersion: tenure.dev/v1\nkind: Transaction\nmetadata: {name: x}\nspec:\n  changes:\n".to_owned();
    for change in changes {
        writeln!(text, "  - {change}").unwrap();
    }
    text
}

#[track_caller]
fn is_refused(text: &str, parts: &[&str]) {
    let place = Scratch::new();
    let file = place.file("x.yaml", text);
    let ended = tenure(&["apply", "-f", &file], &[]);
    let is_said = |part: &&str| ended.err.contains(part);
    assert!(ended.code == Some(78) && ended.err.contains(&file) && parts.iter().all(is_said), "{parts:?} of {text}: {ended:?}");
}

const CONFIG_MAP: &str = "{target: {apiVersion: v1, kind: ConfigMap, name: a}, type: Patch, content: {data: {a: b}}}";

/// The change of this object, such as `v1 ConfigMap a`; `how` is the rest of it.
fn change(target: &str, how: &str) -> String {
    let [version, kind, name]: [&str; 3] = target.splitn(3, ' ').collect::<Vec<_>>().try_into().expect("an object");
    format!("{{target: {{apiVersion: {version}, kind: {kind}, name: {name}}}, {how}}}")
}

/// What is refused: the object, how it is changed, and why.
const REFUSED: &str = "\
v1 ConfigMap b | type: Replace | unknown variant `Replace`
v1 ConfigMap b | type: Patch, contents: {} | unknown field `contents`
v1 ConfigMap b | type: Patch | content is missing
v1 ConfigMap b | type: Update | content is missing
v1 ConfigMap b | type: Patch, content: {} | content is missing
apps/v1 Deployment b/scale | type: Patch, content: {a: b} | a subresource
apps/v1/x Deployment b | type: Patch, content: {a: b} | no apiVersion and kind
v1 ConfigMap .. | type: Patch, content: {a: b} | not the name of an object
v1 ConfigMap b | type: Patch, content: {status: {}} | status cannot be changed
v1 ConfigMap b | type: Patch, content: {metadata: {name: c}} | is not the target's
v1 ConfigMap b | type: Patch, content: {metadata: {namespace: c}} | metadata.namespace in content is not the target's
v1 ConfigMap b | type: Patch, content: {kind: Secret} | another apiVersion or kind
v1 ConfigMap b | type: Patch, content: {metadata: {uid: c}} | metadata.uid cannot
v1 ConfigMap b | type: Patch, content: {metadata: {finalizers: []}} | finalizers
v1 ConfigMap b | type: Create, content: {metadata: {generateName: c}} | generateName
v1 ConfigMap b | type: Patch, content: {a: [null]} | an item that is null
v1 ConfigMap b | type: Create, content: {metadata: {annotations: 'map[]'}} | metadata.annotations is no map of texts
v1 ConfigMap b | type: Create, content: {metadata: {labels: 5}} | metadata.labels is no map
v1 ConfigMap b | type: Patch, content: {metadata: {labels: [x]}} | metadata.labels is no map
v1 ConfigMap b | type: Patch, content: [x] | content is no map
v1 ConfigMap b | type: Patch, content: 5 | content is no map
v1 Secret b | type: Patch, content: {data: {b: '!'}} | data.b is not base64
v1 ConfigMap b | type: Patch, content: {metadata: {annotations: {tenure.dev/change: b}}} | tenure.dev/change is how
coordination.k8s.io/v1 Lease b | type: Delete | a Lease cannot be a target
v1 Namespace b | type: Delete | cannot be brought back
apiextensions.k8s.io/v1 CustomResourceDefinition a.b | type: Delete | cannot be brought back";

#[test]
fn a_file_of_a_transaction_that_is_refused_offline_names_file_document_and_change() {
    let nameless = "{target: {apiVersion: v1, kind: ConfigMap}, type: Patch}";
    is_refused(&transaction(&[CONFIG_MAP, nameless]), &["document 1, change 2", "missing field `name`"]);
    for row in REFUSED.lines() {
        let [target, how, why]: [&str; 3] = row.split(" | ").collect::<Vec<_>>().try_into().expect("three parts");
        is_refused(&transaction(&[CONFIG_MAP, &change(target, how)]), &["document 1, change 2", why]);
    }
}

#[test]
fn files_that_are_no_transaction_are_refused_offline() {
    let missing = "apiVersion: tenure.dev/v1\nkind: Transaction\nmetadata: {name: x}\n";
    let typed = |spec: &str| format!("{missing}spec: {spec}\n");
    let one = |from: &str, to: &str| transaction(&[CONFIG_MAP]).replace(from, to);
    let scaler =
        |version| change(&format!("autoscaling/{version} HorizontalPodAutoscaler a"), "type: Patch, content: {spec: {}}");
    // Each line says the one before it nine times.
    let bomb = |text: String, n: u32| format!("{text}a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 9].join(", "));
    let bomb = (1..9).fold("a0: &a0 [x]\n".to_owned(), bomb);
    for (text, why) in [
        (bomb, "too large or too complex"),
        (missing.to_owned(), "spec.changes is missing"),
        (typed("{changes: []}"), "spec.changes is missing"),
        (typed("{change: []}"), "unknown field `change`"),
        (typed("{lockTimeout: 5m, changes: []}"), "spec: unknown field `lockTimeout`"),
        (typed("{timeout: 5, changes: []}"), "spec: invalid type: integer `5`"),
        (typed("{timeout: soon, changes: []}"), "spec.timeout: \"soon\" is not a duration"),
        (one("kind: Transaction", "kind: Transaction\nmore: 1"), "a Transaction has no key more"),
        (one("{name: x}", "{name: x, namespce: z}"), "metadata of a Transaction has no key namespce"),
        (one("{name: x}", "{name: x, namespace: 2024}"), "metadata.namespace is no text: write \"2024\" in quotes"),
        (one("{name: x}", "oops"), "metadata is no map"),
        (one("{data: {a: b}}", "hunter2"), "change 1: content is no map"),
        (transaction(&["hunter2"]), "change 1: this is no map"),
        (one("ConfigMap", "Secret").replace("{data:", "{data: null, stringData:"), "data beside stringData is no map: remove it"),
        (format!("{0}---\n{0}", transaction(&[CONFIG_MAP])), "document 2: this is a second Transaction"),
        ("a: 1\na: 2\n".to_owned(), "duplicate"),
        ("- a\n".to_owned(), "document 1: this is no object"),
        ("5\n".to_owned(), "document 1: this is no object"),
        (one("dev/v1", "dev/v2"), "the apiVersion of this Transaction is \"tenure.dev/v2\": write tenure.dev/v1"),
        ("kind: ConfigMap\n".to_owned(), "ConfigMap is no Transaction: for manifests use kubectl, Helm or GitOps"),
        ("apiVersion: v1\nkind: List\nitems: [{kind: Pod}]\n".to_owned(), "document 1: List is no Transaction"),
        (typed("5"), "spec is no map"),
        (one("a: b", "a: no"), "an unquoted no is ambiguous: quote it, or write true or false"),
        (one("a: b", "a: [{b: On}]"), "an unquoted On is ambiguous"),
        ("a: [".to_owned(), "line 1"),
        (format!("a: {}\n", "[".repeat(500)), ""),
        (transaction(&[CONFIG_MAP, &CONFIG_MAP.replace("v1", "v1, namespace: ''")]), "is not the name of an object"),
        (transaction(&[CONFIG_MAP, CONFIG_MAP]), "is a target twice"),
        (transaction(&[&scaler("v1"), &scaler("v2")]), "is a target twice: also in"),
        (transaction(&vec![CONFIG_MAP; 33]), "33 changes are more than 32"),
    ] {
        is_refused(&text, &[why]);
    }
    let place = Scratch::new();
    let long = place.file("long.yaml", format!("a: {}\n", "b".repeat(1 << 20)));
    tenure(&["apply", "x", "-f", &long], &[]).says(78, &["long.yaml: it is longer than 1 MiB"]);
    let half = format!("type: Create, content: {{data: {{a: {}}}}}", "b".repeat(300_000));
    let halves = ["v1 ConfigMap a", "v1 ConfigMap b"].map(|target| change(target, &half));
    let large = place.file("large.yaml", transaction(&halves.each_ref().map(String::as_str)));
    tenure(&["apply", "x", "-f", &large], &[]).says(78, &["more than 524288: split the transaction"]);
    tenure(&["apply", "x", "-f", "/nonexistent/file"], &[]).says(78, &["/nonexistent/file: No such file"]);
}

#[test]
fn a_file_that_the_command_under_the_lock_could_not_be_told_is_refused() {
    let place = Scratch::new();
    let file = place.file("x.yaml", transaction(&[CONFIG_MAP]));
    let script = r#"odd=$2$(printf '\377') && cp "$2" "$odd" && exec "$1" apply x -f "$odd""#;

    tenure_after(script, &[&file], &[]).says(64, &["x.yaml\\xFF\" is no UTF-8: rename the file"]);
    let pipe = r#"mkfifo "$2.pipe" && { cat "$2" >"$2.pipe" & } && exec "$1" apply x --dry-run -f "$2.pipe""#;
    tenure_after(pipe, &[&file], &[]).says(78, &["x.yaml.pipe: a pipe can be read only once: write -f -"]);
}

#[test]
fn a_text_that_only_looks_like_a_boolean_and_an_empty_object_are_taken_and_a_volume_claim_that_is_deleted_is_named() {
    let cluster = Cluster::nowhere();
    let quoted = [CONFIG_MAP.replace("a: b", "a: 'no', y: 'y', t: true"), CONFIG_MAP.replace("name: a", "name: yes-please")];
    let claim = change("v1 PersistentVolumeClaim data", "type: Delete");
    let account = change("v1 ServiceAccount a", "type: Create, content: {}");
    let file = cluster.place().file("x.yaml", transaction(&[&quoted[0], &quoted[1], &claim, &account]));

    let ended = cluster.tenure(&["apply", "-f", &file, "--dry-run", "--try"]);

    let claim = "change 3 (PersistentVolumeClaim/data): undoing this Delete does not bring the data of the volume back";
    ended.says(69, &[claim, "GET /api/v1: cannot reach the API server", "Connection refused"]);
}

#[test]
fn a_transaction_without_a_name_is_64_and_so_is_one_without_a_file() {
    let place = Scratch::new();
    let file = place.file("x.yaml", transaction(&[CONFIG_MAP]).replace("metadata: {name: x}\n", ""));
    tenure(&["apply", "-f", &file], &[]).says(64, &["name the transaction: tenure apply NAME -f FILE"]);
    tenure(&["apply", "x"], &[]).says(64, &["--filename <FILE>"]);
    tenure(&["apply", "x", "-f", &file, "--try", "--wait"], &[]).says(64, &["cannot be used with"]);
    tenure(&["apply", "x", "-f", &file, "--limit", "5"], &[]).says(78, &["5"]);
    tenure(&["recover", "apply"], &[]).says(64, &["required"]);
    tenure(&["recover", "undo", "x"], &[]).says(78, &["plan, apply, forget"]);
}

#[test]
fn a_promotion_that_creates_or_deletes_is_refused() {
    let place = Scratch::new();
    for kind in ["Update", "Create", "Delete"] {
        let file =
            place.file("x.yaml", transaction(&[CONFIG_MAP, &CONFIG_MAP.replace("name: a", "name: b").replace("Patch", kind)]));

        tenure(&["promote", "-f", &file], &[]).says(78, &["change 2 (ConfigMap/b): a promotion has changes of type Patch only"]);
    }
}

#[test]
fn a_promotion_that_is_refused_shows_no_value() {
    let place = Scratch::new();
    let secret = change("v1 Secret a", "type: Patch, content: {stringData: {a: sentinel-$(POD_NAME}}");
    let file = place.file("x.yaml", transaction(&[CONFIG_MAP, &secret]));

    let ended = tenure(&["promote", "-f", &file], &[]);

    ended.says(78, &["change 2: a text has a $( without )"]);
    assert!(!ended.err.contains("sentinel"), "{ended:?}");
}

#[test]
fn a_lease_that_is_deleted_at_its_release_announces_no_transaction() {
    let cluster = Cluster::nowhere();
    let file = cluster.place().file("x.yaml", transaction(&[CONFIG_MAP]));
    for command in [&["apply", "-f", &file, "--dry-run"][..], &["recover", "plan", "x"]] {
        let ended = cluster.tenure(&[command, &["--set", "lease.release=delete"]].concat());

        ended.says(78, &["lease.release: delete takes what the Lease announces with it: use clear or keep"]);
    }
}

#[test]
fn a_plan_that_asks_again_says_so() {
    let ended = Cluster::nowhere().tenure(&["recover", "plan", "x", "--timeout", "1s"]);

    ended.says(69, &["no success yet: cannot reach the API server", "Connection refused"]);
    assert_eq!(ended.err.matches("no success yet").count(), 1, "{ended:?}");
}

#[test]
fn a_look_which_has_nothing_to_undo_ends_by_a_signal_at_once() {
    let cluster = Cluster::scripted(&[("GET", 0, "")]);

    let ended = tenure_after("(sleep 1; kill -TERM $$) & exec \"$@\"", &["recover", "plan", "x"], &[cluster.variable()]);

    assert_eq!(ended.code, None, "{ended:?}");
}

#[test]
fn a_plan_that_is_not_let_in_is_77_and_not_that_there_is_something_to_undo() {
    for status in [401, 403] {
        let cluster = Cluster::scripted(&[("/secrets/txn-x-journal ", status, r#"{"message":"no"}"#)]);

        cluster
            .tenure(&["recover", "plan", "x"])
            .says(77, &["the journal, Secret default/txn-x-journal: the API server answered"]);
    }
}

#[test]
fn who_changes_the_objects_as_another_user_reads_the_journal_as_himself_and_is_not_in_his_own_groups() {
    let served = r#"{"resources":[{"name":"configmaps","kind":"ConfigMap","namespaced":true,"verbs":["get","patch"]}]}"#;
    let absent = r#"{"details":{"kind":"configmaps","name":"a"},"message":"not found"}"#;
    let ann = ("/configmaps/a HTTP/1.1\r\nimpersonate-user: ann\r\n", 404, absent);
    let no_journal = r#"{"details":{"kind":"secrets","name":"txn-x-journal"},"message":"not found"}"#;
    let as_ann = ("journal HTTP/1.1\r\nimpersonate-user", 403, r#"{"message":"may not read the journal"}"#);
    let in_groups = ("impersonate-user: ann\r\nimpersonate-", 403, r#"{"message":"in the groups of root"}"#);
    let as_root = ("journal HTTP/1.1\r\nimpersonate-user: root\r\nimpersonate-", 404, no_journal);
    for (user, journal) in [
        ("user: {}", [as_ann, ("/secrets/txn-x-journal ", 404, no_journal)]),
        ("user: {as: root, as-groups: [system:masters], as-uid: '7'}", [in_groups, as_root]),
    ] {
        let answers = [&[("GET /api/v1 ", 200, served)], &journal[..], &[ann]].concat();
        let cluster = Cluster::scripted(&answers).with("user: {}", user);
        let file = cluster.place().file("x.yaml", transaction(&[CONFIG_MAP]));

        let ended = cluster.tenure(&["apply", "-f", &file, "--dry-run", "--as", "ann"]);

        let is_asked = ended.code == Some(1) && ended.err.contains("ConfigMap default/a does not exist");
        assert!(is_asked, "{user}: {ended:?}");
    }
}
