//! What follows from a transition.

use super::{Ask, Kind, Law, Memory, Ns, Request, Step, UNSEEN, V, Version, What};

impl Law {
    /// Takes the step, whether or not the law allows it.
    pub fn take(&mut self, step: &Step) {
        let Step { what, k, v, t, base, text, asks, .. } = *step;
        let (now, q) = (self.now, step.q.unwrap_or(usize::MAX));
        let asked = |ask| Request { ask, who: step.r, base, sent: now, text, asks, ts: now, tv: 0 };
        match what {
            What::Passes => self.now = t,
            What::Sees => self.sees(step.r, k),
            What::SeesLateAbsence => {
                let r = &mut self.replicas[step.r];
                (r.seen, r.since, r.memory.uid) = (UNSEEN, now, 0);
                r.memory.until = r.memory.until.max(now + r.memory.longest);
            }
            What::Takes | What::TakesAgain | What::PeerTakes => self.sends(q, asked(Ask::Take), true),
            What::Renews => {
                let Version { ts, tv, .. } = *self.version(self.replicas[step.r].val);
                self.sends(q, Request { ts, tv, ..asked(Ask::Renew) }, true);
            }
            What::Releases | What::Obituary => self.sends(q, asked(Ask::Release), false),
            What::Holds => self.sends(q, asked(Ask::Hold), false),
            What::Creates => self.sends(q, asked(Ask::Create), false),
            What::Begins => {
                let r = &mut self.replicas[step.r];
                r.remembered.clear();
                (r.has_term, r.is_lost, r.is_proved, r.val, r.tok, r.lead) = (true, false, false, k, k, true);
            }
            What::IsLate => {
                let spec = self.version(k).spec;
                let r = &mut self.replicas[step.r];
                r.remembered.clear();
                r.late = spec;
            }
            What::Extends => {
                let own = self.own(step.r, step.q, k);
                let later = self.later(self.replicas[step.r].val, k);
                let r = &mut self.replicas[step.r];
                own.map(|q| r.remembered.remove(&q));
                r.extensions.insert(k);
                r.val = later;
            }
            What::Forgets => {
                self.replicas.iter_mut().for_each(|r| {
                    r.remembered.remove(&q);
                });
            }
            What::Loses => self.replicas[step.r].is_lost = true,
            What::Voids => {
                let r = &mut self.replicas[step.r];
                r.remembered.clear();
                (r.releases, r.has_term, r.is_proved) = (true, false, false);
            }
            What::Follows => {
                let r = &mut self.replicas[step.r];
                r.remembered.clear();
                (r.releases, r.has_term, r.is_proved, r.init_leads) = (false, false, false, false);
            }
            What::InitLeads => {
                let r = &mut self.replicas[step.r];
                (r.lead, r.init_leads, r.is_open, r.ival, r.itok) = (false, true, true, r.tok, r.tok);
            }
            What::InitExtends => {
                let later = self.later(self.replicas[step.r].ival, k);
                let r = &mut self.replicas[step.r];
                r.extensions.remove(&k);
                r.ival = later;
            }
            What::Starts => {
                self.running.insert(step.r);
            }
            What::Stops => {
                self.running.remove(&step.r);
            }
            What::Proves => (self.replicas[step.r].is_proved, self.replicas[step.r].is_open) = (true, false),
            What::NextElector => {
                let r = &mut self.replicas[step.r];
                r.remembered.clear();
                r.extensions.clear();
                (r.lead, r.has_term, r.is_lost, r.is_proved, r.releases) = (false, r.init_leads, !r.is_open, false, false);
                (r.val, r.tok, r.seen, r.since, r.late) = (r.ival, r.itok, UNSEEN, now, UNSEEN);
            }
            What::Dies => {
                let r = &mut self.replicas[step.r];
                r.remembered.clear();
                (r.is_dead, r.has_term, r.is_lost, r.is_proved) = (true, false, false, false);
                (r.releases, r.lead, r.init_leads, r.is_open) = (false, false, false, false);
                self.running.remove(&step.r);
            }
            What::StoresRenewal | What::StoresTake => {
                let Request { who, sent, ts, tv, .. } = self.requests[&q];
                let tv = if what == What::StoresTake { self.next(v) } else { tv };
                let (dur, is_named) = (self.replicas[who].d, self.version(self.top).is_named || !self.replicas[who].is_polite);
                self.writes(v, Version { hold: who, by: q, snd: sent, ts, tv, dur, is_named, ..Version::of(Kind::Held) });
                self.claims.push(self.top);
                let claims = std::mem::take(&mut self.claims);
                self.claims = claims.into_iter().filter(|k| !self.is_over(*k)).collect();
            }
            What::StoresRelease => self.writes(v, Version::of(Kind::Released)),
            What::StoresPeersRelease => self.writes(v, Version { is_named: true, ..Version::of(Kind::Free) }),
            What::StoresNobody | What::StoresCreation => {
                let dur = self.requests[&q].asks;
                self.writes(v, Version { dur, is_named: true, ..Version::of(Kind::Nobody) });
            }
            What::Empties => self.writes(v, self.kept(Kind::Free)),
            What::Deletes => self.writes(v, Version::of(Kind::Absent)),
            What::Steals => self.writes(v, Version { dur: t, ..self.kept(Kind::Foreign) }),
            What::DropsName => {
                self.writes(v, Version { dur: t, is_named: false, is_dropped: true, ..self.kept(Kind::Foreign) });
            }
            What::StrangerCreates => self.writes(v, Version { dur: t, is_orphan: true, ..Version::of(Kind::Foreign) }),
            What::StrangerReleases => {
                let is_orphan = self.version(self.top).is_orphan;
                self.writes(v, Version { is_orphan, ..Version::of(Kind::Released) });
            }
            What::Labels => self.copies(v, |_, _| ()),
            What::Unsets => self.copies(v, |version, k| (version.dur, version.spec) = (0, number(k))),
            What::EditsDuration => self.copies(v, |version, k| (version.dur, version.spec) = (t, number(k))),
        }
    }

    /// Takes a step that was decided at that time.
    pub fn take_at(&mut self, step: &Step, at: Ns) {
        let now = std::mem::replace(&mut self.now, at);
        self.take(step);
        self.now = now.max(self.now);
    }

    fn next(&self, v: V) -> V {
        if v == 0 { self.top + 1 } else { v }
    }

    /// Adds a version of the Lease, or the absence of one.
    fn writes(&mut self, v: V, version: Version) {
        let (top, v) = (*self.version(self.top), self.next(v));
        let uid = match (version.kind, top.kind) {
            (Kind::Absent, _) => 0,
            (_, Kind::Absent) => v,
            (_, _) => top.uid,
        };
        let spec = match version.kind {
            Kind::Absent => 0,
            Kind::Free => -number(uid),
            Kind::Released | Kind::Nobody | Kind::Held | Kind::Foreign => number(v),
        };
        self.versions.insert(v, Version { uid, spec, ..version });
        self.top = v;
    }

    /// What a stranger's write keeps of the last version.
    fn kept(&self, kind: Kind) -> Version {
        let Version { is_named, is_orphan, is_dropped, .. } = *self.version(self.top);
        Version { is_named, is_orphan, is_dropped, ..Version::of(kind) }
    }

    /// Adds a version that is like the last one, but for this change.
    fn copies(&mut self, v: V, change: impl FnOnce(&mut Version, V)) {
        let (mut version, v) = (*self.version(self.top), self.next(v));
        change(&mut version, v);
        self.versions.insert(v, version);
        if version.kind == Kind::Held {
            self.claims.push(v);
        }
        self.top = v;
    }

    fn sends(&mut self, q: usize, request: Request, is_remembered: bool) {
        let r = &mut self.replicas[request.who];
        r.said.insert(request.text);
        if is_remembered {
            r.remembered.insert(q);
        }
        self.requests.insert(q, request);
    }

    /// The one of two versions whose write was sent later.
    fn later(&self, before: V, k: V) -> V {
        if self.version(k).snd >= self.version(before).snd { k } else { before }
    }

    /// A follower sees version `k` (rules 11 and 14).
    fn sees(&mut self, r: usize, k: V) {
        let (now, version) = (self.now, *self.version(k));
        let r = &mut self.replicas[r];
        let Memory { longest: before, uid, is_named, .. } = r.memory;
        let is_new = version.spec != r.seen;
        let is_another = uid != 0 && uid != version.uid && version.kind != Kind::Absent;
        let recorded = r.d.max(version.dur);
        r.memory.longest = match version.kind {
            Kind::Held | Kind::Foreign if version.dur > 0 => recorded,
            Kind::Nobody => before.max(recorded),
            Kind::Absent | Kind::Free | Kind::Released | Kind::Held | Kind::Foreign => before,
        };
        let hides = match version.kind {
            Kind::Absent | Kind::Free | Kind::Nobody => true,
            Kind::Foreign => version.is_named || is_named,
            Kind::Released | Kind::Held => false,
        };
        if is_another || is_new && hides {
            r.memory.until = r.memory.until.max(now + before.max(r.memory.longest));
        }
        if is_new {
            r.since = now;
        }
        match version.kind {
            Kind::Held | Kind::Foreign | Kind::Nobody => (r.memory.uid, r.memory.is_named) = (version.uid, version.is_named),
            Kind::Absent | Kind::Free | Kind::Released => {
                r.memory.is_named &= version.kind != Kind::Released;
                if version.kind == Kind::Absent || is_another {
                    r.memory.uid = 0;
                }
            }
        }
        if version.kind == Kind::Held && version.dur > 0 {
            r.memory.known.insert(version.tv);
        }
        (r.seen, r.latest) = (version.spec, k);
    }
}

fn number(v: V) -> i64 {
    i64::try_from(v).unwrap_or(i64::MAX)
}
