//! Administrator access to an API server: everything as raw JSON, so that a test can write what a typed client would not.

use std::path::Path;

use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use super::{PATIENCE, until, within};

/// A client of one API server.
#[derive(Clone)]
pub struct Api {
    client: Client,
    token: String,
}

/// An answer: status and JSON body.
pub type Answer = (u16, Value);

impl Api {
    /// With the credentials of a kubeconfig.
    pub async fn connect(kubeconfig: &Path) -> Self {
        let config = config(kubeconfig).await;
        let text = std::fs::read_to_string(kubeconfig).expect("a kubeconfig");
        let document: Value = serde_saphyr::from_str(&text).expect("YAML");
        let token = document["users"][0]["user"]["token"].as_str().unwrap_or_default().to_owned();
        Self { client: Client::try_from(config).expect("a client"), token }
    }

    /// Its bearer token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The client itself, for requests that are not plain JSON in and out.
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Sends a request, which must be answered.
    pub async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        self.attempt(method, path, body).await.expect("an answer")
    }

    /// Sends a request.
    ///
    /// # Errors
    /// No complete answer comes back.
    pub async fn attempt(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer, kube::Error> {
        let bytes = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let answer = self.client.send(request.body(Body::from(bytes)).expect("a request")).await?;
        let status = answer.status().as_u16();
        let bytes = answer.into_body().collect().await?.to_bytes();
        Ok((status, serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
    }

    /// Creates an object.
    pub async fn create(&self, path: &str, object: &Value) -> Value {
        let (status, body) = self.call(Method::POST, path, Some(object)).await;
        assert_eq!(status, 201, "POST {path} {object}: {body}");
        body
    }

    /// Returns access to one Lease.
    pub fn lease(&self, namespace: &str, name: &str) -> Lease {
        Lease { api: self.clone(), namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// A token of a service account that has exactly the permissions on the Lease `name` that tenure needs.
    pub async fn minimal_token(&self, namespace: &str, name: &str, verbs: &Verbs) -> String {
        self.minimal_account(&format!("tenure-{:08x}", fastrand::u32(..)), namespace, name, verbs).await
    }

    /// The same for a service account of this name, which its Role and RoleBinding share.
    pub async fn minimal_account(&self, account: &str, namespace: &str, name: &str, verbs: &Verbs) -> String {
        let core = format!("/api/v1/namespaces/{namespace}");
        self.create(&format!("{core}/serviceaccounts"), &json!({ "metadata": { "name": account } })).await;
        self.grant(namespace, account, &verbs.rules(name)).await;
        let request = json!({ "spec": { "expirationSeconds": 3600 } });
        let token = self.create(&format!("{core}/serviceaccounts/{account}/token"), &request).await;
        let get =
            json!({ "namespace": namespace, "verb": "get", "group": "coordination.k8s.io", "resource": "leases", "name": name });
        self.decides(namespace, account, &get, true).await;
        token["status"]["token"].as_str().expect("a token").to_owned()
    }

    /// Gives a service account a Role with these rules, which has its name.
    pub async fn grant(&self, namespace: &str, account: &str, rules: &Value) {
        let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
        self.create(&format!("{rbac}/roles"), &json!({ "metadata": { "name": account }, "rules": rules })).await;
        let binding = json!({
            "metadata": { "name": account },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account },
            "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": namespace }],
        });
        self.create(&format!("{rbac}/rolebindings"), &binding).await;
    }

    /// Waits until a service account may do this, or may not: the authorizer learns of bindings through its own watch.
    pub async fn decides(&self, namespace: &str, account: &str, attributes: &Value, allowed: bool) {
        // A young server has no roles of its own yet.
        let ask = json!({ "verb": "create", "group": "authorization.k8s.io", "resource": "selfsubjectaccessreviews" });
        for (attributes, allowed) in [(attributes, allowed), (&ask, true)] {
            until("the role bindings are in force", async || self.may(namespace, account, attributes).await == allowed).await;
        }
    }

    /// Returns whether a service account may do this.
    pub async fn may(&self, namespace: &str, account: &str, attributes: &Value) -> bool {
        let user = format!("system:serviceaccount:{namespace}:{account}");
        let groups = ["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}"), "system:authenticated"];
        let review = json!({ "spec": { "user": user, "groups": groups, "resourceAttributes": attributes } });
        self.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await["status"]["allowed"] == true
    }

    /// Replaces what the account of [`Self::minimal_account`] may.
    pub async fn allow(&self, account: &str, namespace: &str, name: &str, verbs: &Verbs) {
        let role = json!({ "metadata": { "name": account }, "rules": verbs.rules(name) });
        let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles/{account}");
        let (status, body) = self.call(Method::PUT, &path, Some(&role)).await;
        assert_eq!(status, 200, "{body}");
    }

    /// Another token of this service account, valid as long as the Secret of this name exists.
    pub async fn bound_token(&self, account: &str, namespace: &str, secret: &str) -> String {
        let core = format!("/api/v1/namespaces/{namespace}");
        let secret = self.create(&format!("{core}/secrets"), &json!({ "metadata": { "name": secret } })).await;
        self.token_bound_to(account, namespace, "Secret", &secret).await
    }

    /// The same for a pod, which no node runs.
    pub async fn token_of_a_pod(&self, account: &str, namespace: &str, pod: &str) -> String {
        let pod = json!({
            "metadata": { "name": pod },
            "spec": { "serviceAccountName": account, "containers": [{ "name": "main", "image": "none" }] },
        });
        let pod = self.create(&format!("/api/v1/namespaces/{namespace}/pods"), &pod).await;
        self.token_bound_to(account, namespace, "Pod", &pod).await
    }

    async fn token_bound_to(&self, account: &str, namespace: &str, kind: &str, object: &Value) -> String {
        let core = format!("/api/v1/namespaces/{namespace}");
        let metadata = &object["metadata"];
        let bound = json!({ "apiVersion": "v1", "kind": kind, "name": metadata["name"], "uid": metadata["uid"] });
        let request = json!({ "spec": { "expirationSeconds": 3600, "boundObjectRef": bound } });
        let token = self.create(&format!("{core}/serviceaccounts/{account}/token"), &request).await;
        token["status"]["token"].as_str().expect("a token").to_owned()
    }

    /// Deletes what a token is bound to, such as `secrets/NAME`, at once. The server may accept the token for some seconds more.
    pub async fn withdraw_token(&self, namespace: &str, object: &str) {
        let path = format!("/api/v1/namespaces/{namespace}/{object}");
        let (status, body) = self.call(Method::DELETE, &path, Some(&json!({ "gracePeriodSeconds": 0 }))).await;
        assert_eq!(status, 200, "DELETE {path}: {body}");
    }
}

/// The verbs that a Role allows.
#[derive(Clone, Debug)]
pub struct Verbs {
    /// On the named Lease.
    pub named: Vec<String>,
    /// On Leases in general: `create` cannot be restricted to a name.
    pub any: Vec<String>,
    /// Rules about other objects.
    pub others: Vec<Value>,
}

impl Default for Verbs {
    /// Those of the Role in deploy/, and `create`, which that Role does not need because deploy/ creates the Lease.
    fn default() -> Self {
        let documents = include_str!("../../deploy/access/access.yaml").split("---");
        let mut objects = documents.map(|text| serde_saphyr::from_str::<Value>(text).expect("YAML"));
        let role = objects.find(|object| object["kind"] == "Role").expect("a Role");
        let named = serde_json::from_value(role["rules"][0]["verbs"].clone()).expect("verbs");
        Self { named, any: vec!["create".into()], others: Vec::new() }
    }
}

impl Verbs {
    /// Adds this one on the named Lease.
    pub fn with(mut self, verb: &str) -> Self {
        self.named.push(verb.into());
        self
    }

    /// Removes this one.
    pub fn without(mut self, verb: &str) -> Self {
        self.named.retain(|named| named != verb);
        self.any.retain(|any| any != verb);
        self
    }

    fn rules(&self, name: &str) -> Value {
        let groups = ["coordination.k8s.io"];
        let named = json!({ "apiGroups": groups, "resources": ["leases"], "resourceNames": [name], "verbs": self.named });
        let any = json!({ "apiGroups": groups, "resources": ["leases"], "verbs": self.any });
        let rules = [named, any].into_iter().filter(|rule| rule["verbs"] != json!([]));
        rules.chain(self.others.iter().cloned()).collect()
    }
}

/// A Lease, as an administrator or a rival sees and changes it.
#[derive(Clone)]
pub struct Lease {
    api: Api,
    namespace: String,
    name: String,
}

impl Lease {
    /// The object, if it exists.
    pub async fn read(&self) -> Option<Value> {
        let (status, body) = self.api.call(Method::GET, &self.path(), None).await;
        match status {
            200 => Some(body),
            404 => None,
            _ => panic!("GET {}: {status} {body}", self.path()),
        }
    }

    /// Creates it with this spec.
    pub async fn create(&self, spec: Value) -> Value {
        let object =
            json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": self.name }, "spec": spec });
        self.api.create(&self.collection(), &object).await
    }

    /// Asks whoever holds it to step down, as `kubectl annotate` does.
    pub async fn ask_to_step_down(&self) {
        let ask = |lease: &mut Value| {
            lease["metadata"]["annotations"]["tenure.dev/step-down"] = lease["spec"]["holderIdentity"].clone();
        };
        self.edit(ask).await;
    }

    /// Changes the object as it is now, retrying after conflicts. Returns the object after the change.
    pub async fn edit(&self, change: impl Fn(&mut Value)) -> Value {
        within(PATIENCE, "an edit without a conflict", async {
            loop {
                let mut object = self.read().await.expect("a Lease to edit");
                change(&mut object);
                match self.api.call(Method::PUT, &self.path(), Some(&object)).await {
                    (200, body) => return body,
                    (409, _) => {}
                    (status, body) => panic!("PUT {object}: {status} {body}"),
                }
            }
        })
        .await
    }

    /// Replaces the spec.
    pub async fn set_spec(&self, spec: Value) -> Value {
        self.edit(|object| object["spec"] = spec.clone()).await
    }

    /// Deletes it.
    pub async fn delete(&self) {
        let (status, body) = self.api.call(Method::DELETE, &self.path(), None).await;
        assert!(matches!(status, 200 | 202), "DELETE {}: {status} {body}", self.path());
    }

    /// Waits until the predicate accepts the Lease, or its absence.
    pub async fn wait(&self, what: &str, is_so: impl Fn(Option<&Value>) -> bool) -> Option<Value> {
        within(PATIENCE, what, async {
            loop {
                let seen = self.read().await;
                if is_so(seen.as_ref()) {
                    return seen;
                }
                self.changed(seen.as_ref()).await;
            }
        })
        .await
    }

    /// Waits for the next change after `seen`.
    async fn changed(&self, seen: Option<&Value>) {
        let version = seen.map_or("", |object| object["metadata"]["resourceVersion"].as_str().unwrap_or_default());
        let uri = format!(
            "{}?watch=1&fieldSelector=metadata.name%3D{}&resourceVersion={version}&timeoutSeconds=5",
            self.collection(),
            self.name
        );
        let request = Request::get(uri).body(Body::empty()).expect("a request");
        let answer = self.api.client.send(request).await.expect("a watch");
        // Any event will do: its content is read afresh.
        drop(answer.into_body().frame().await);
    }

    /// The path of the Leases of its namespace.
    pub fn collection(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)
    }

    /// Its path.
    pub fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }
}

/// A client configuration from a kubeconfig; nothing is retried without the test's knowledge.
pub async fn config(kubeconfig: &Path) -> Config {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("a configuration");
    config.default_retry = false;
    config
}
