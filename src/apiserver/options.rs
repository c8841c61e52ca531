//! The options of a write: whether it is only tried, and what is asked for that there is not.
//!
//! Owns their rules. Those of a LIST or watch stand with the request.

use serde_json::Value;

use super::{
    request::Request,
    status::{Cause, Status},
};

const LONGEST_MANAGER: usize = 128;

impl Request {
    /// Whether nothing of it shall be kept. `kind` names the options of its verb.
    pub(super) fn write_options(&self, kind: &str) -> Result<bool, Status> {
        let mut causes = Vec::new();
        if self.query.text("fieldManager").len() > LONGEST_MANAGER {
            causes.push(Cause::too_long("fieldManager", LONGEST_MANAGER));
        }
        let dry = self.dry_run(&mut causes);
        let asked = self.query.text("fieldValidation");
        if !matches!(asked, "" | "Ignore" | "Strict" | "Warn") {
            causes.push(Cause::unsupported("fieldValidation", asked, "\"\", \"Ignore\", \"Strict\", \"Warn\""));
        }
        if causes.is_empty() { Ok(dry) } else { Err(Status::invalid_options(kind, &causes)) }
    }

    /// As [`Self::write_options`], for DELETE, whose body stands in place of the query.
    pub(super) fn delete_options(&self, body: Option<&Value>) -> Result<bool, Status> {
        let mut causes = Vec::new();
        let dry = match body {
            Some(body) => body.get("dryRun").and_then(Value::as_array).is_some_and(|modes| modes_are_dry(modes, &mut causes)),
            None => self.dry_run(&mut causes),
        };
        if causes.is_empty() { Ok(dry) } else { Err(Status::invalid_options("DeleteOptions", &causes)) }
    }

    fn dry_run(&self, causes: &mut Vec<Cause>) -> bool {
        self.query.has("dryRun") && modes_are_dry(&[self.query.text("dryRun").into()], causes)
    }
}

fn modes_are_dry(modes: &[Value], causes: &mut Vec<Cause>) -> bool {
    if modes.iter().any(|mode| mode != "All") {
        causes.push(Cause::unsupported_list("dryRun", modes, "\"All\""));
    }
    !modes.is_empty()
}
