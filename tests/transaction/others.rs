//! What others do to the objects and journals meanwhile.

use serde_json::{Value, json};

use crate::{
    judge::{data, field, put},
    server::mark,
    world::World,
};

impl World {
    fn object(&mut self, prefix: &str, marked: bool) -> Option<String> {
        let fits = |(name, object): &(&String, &Value)| name.starts_with(prefix) && (!marked || mark(object).is_some());
        let names: Vec<String> = self.cluster.objects.iter().filter(fits).map(|(name, _)| name.clone()).collect();
        (!names.is_empty()).then(|| names[self.e.rng.usize(0..names.len())].clone())
    }

    pub fn edit(&mut self) {
        let Some(name) = self.object("", false) else { return };
        let key = self.pick(&["a", "b", "z", "m.x", "m.y"]);
        let number = self.cluster.new_version();
        let reverts = self.e.chance(self.revert);
        let removes = self.e.chance(0.15);
        let value = match self.origin.get(&name) {
            Some(origin) if reverts => field(Some(origin), key),
            _ if removes => None,
            _ => Some(json!(format!("{name}:f{}", number.as_str().unwrap()))),
        };
        let found = self.cluster.objects[&name].clone();
        self.cluster.edit(&name, "kubectl", |object| put(object, key, value.as_ref()));
        self.e.note("somebody", || format!("sets {name}.{key} to {value:?}"));
        self.e.judge.edited(&name, &found, &self.cluster.objects[&name]);
    }

    pub fn control(&mut self) {
        let Some(name) = self.object("", false) else { return };
        let number = self.cluster.new_version();
        self.cluster.edit(&name, "controller", |object| object["spec"]["controlled"] = number);
    }

    pub fn copy(&mut self) {
        let Some(name) = self.object("", true) else { return };
        self.e.note("somebody", || format!("makes {name} anew, with its mark"));
        let uid = self.cluster.new_uid();
        self.cluster.edit(&name, "velero", |object| object["metadata"]["uid"] = uid);
        let object = self.cluster.objects[&name].clone();
        self.e.judge.copied(&self.cluster, &name, &object);
    }

    pub fn status(&mut self) {
        let names: Vec<String> = self.cluster.objects.keys().cloned().collect();
        for name in names {
            if self.e.rng.bool() {
                let next = self.cluster.new_version();
                self.cluster.objects.get_mut(&name).unwrap()["metadata"]["resourceVersion"] = next;
            }
        }
    }

    pub fn strip(&mut self) {
        let Some(name) = self.object("", true) else { return };
        self.cluster.edit(&name, "kubectl", |object| object["metadata"]["annotations"] = json!({}));
        self.e.note("somebody", || format!("takes the mark off {name}"));
        self.e.judge.stripped.insert(name);
    }

    pub fn recreate(&mut self) {
        let Some(name) = self.object("X", false) else { return };
        let (author, has_map) = (if self.e.rng.bool() { "o" } else { "r" }, self.e.rng.bool());
        self.e.note("somebody", || format!("makes {name} anew"));
        self.plant(&name, data(&name, author, has_map));
    }

    pub fn delete(&mut self) {
        let Some(name) = self.object("X", false) else { return };
        self.e.note("somebody", || format!("deletes {name}"));
        self.cluster.objects.remove(&name);
        self.e.judge.deleted(&name);
    }

    pub fn create(&mut self) {
        if !self.cluster.objects.contains_key("C0") || self.e.rng.bool() {
            self.e.note("somebody", || "makes C0".into());
            self.plant("C0", json!({ "a": "C0:f" }));
        }
    }

    pub fn lose_journal(&mut self) {
        if let Some(name) = self.cluster.journals.keys().next().cloned() {
            self.e.note("somebody", || format!("deletes {name}"));
            self.cluster.journals.remove(&name);
            self.e.judge.loses(name);
        }
    }
}
