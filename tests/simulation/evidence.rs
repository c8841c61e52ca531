//! What an elector has seen that proves its term lost (law 4).

use std::rc::Rc;

use serde_json::Value;
use tenure::election::{Answer, Input, RequestId, Watched};

/// See the module.
#[derive(Debug, Default)]
pub struct Evidence {
    /// The uid of the Lease that is held.
    uid: Option<Rc<str>>,
    /// The latest version seen.
    seen: u64,
    /// The last GET.
    read: Option<RequestId>,
}

impl Evidence {
    /// A term of the Lease of this uid.
    pub fn begins(&mut self, uid: &str) {
        self.uid = Some(uid.into());
    }

    /// It is over.
    pub fn ends(&mut self) {
        self.uid = None;
    }

    /// This request is a GET: its answer is always believed.
    pub fn reads(&mut self, id: RequestId) {
        self.read = Some(id);
    }

    /// Takes in what arrived; true if `me` has lost what it holds.
    pub fn shows_a_loss(&mut self, input: &Input, me: &str) -> bool {
        let version = |object: &Value| object["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok());
        let (news, read) = match input {
            Input::Answered { id, answer: Answer::Object(object) } => {
                self.is_news(version(object));
                (false, Some(*id) == self.read)
            }
            Input::Watched(Watched::Changed(object) | Watched::Deleted(object)) => (self.is_news(version(object)), false),
            Input::Answered { .. } | Input::Watched(Watched::Bookmark(_) | Watched::Ended(_)) | Input::Told(_) => (false, false),
        };
        let Some(uid) = self.uid.as_deref() else { return false };
        let foreign = |object: &Value| object["metadata"]["uid"] != *uid || object["spec"]["holderIdentity"] != me;
        match input {
            Input::Answered { answer: Answer::NotFound, .. } => true,
            // What has no version is no Lease, and no evidence.
            Input::Answered { answer: Answer::Object(object), .. } => read && version(object).is_some() && foreign(object),
            Input::Watched(Watched::Changed(object)) => news && foreign(object),
            Input::Watched(Watched::Deleted(object)) => news && object["metadata"]["uid"] == *uid,
            Input::Answered {
                answer: Answer::Deleted | Answer::Conflict | Answer::Refused { .. } | Answer::Unknown { .. },
                ..
            }
            | Input::Watched(Watched::Bookmark(_) | Watched::Ended(_))
            | Input::Told(_) => false,
        }
    }

    fn is_news(&mut self, version: Option<u64>) -> bool {
        let news = version.is_some_and(|version| version > self.seen);
        self.seen = self.seen.max(version.unwrap_or_default());
        news
    }
}
