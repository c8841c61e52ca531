//! Which transitions the law allows.

use super::{Ask, Illegal, Kind, Law, Ns, Replica, Step, V, Version, What};

fn need(holds: bool, sentence: Illegal) -> Result<(), Illegal> {
    if holds { Ok(()) } else { Err(sentence) }
}

impl Law {
    /// Checks that the law allows this step now.
    ///
    /// # Errors
    /// What it breaks: half a sentence of the law, or an assumption, by its name in `proof/law.py`; otherwise the step itself.
    #[expect(clippy::or_fun_call, reason = "the parts are cheap, and read as one sentence")]
    pub fn allows(&self, step: &Step) -> Result<(), Illegal> {
        let Step { what, k, t, base, .. } = *step;
        let (name, top, nobody) = (what.name(), self.version(self.top), Replica::default());
        let r = self.replicas.get(step.r).unwrap_or(&nobody);
        let is_there = need(top.kind != Kind::Absent, name);
        let alive = need(!r.is_dead, name);
        let idle = need(!(r.is_dead || r.is_polite || r.has_term || r.releases || r.init_leads), name);
        // It may write, and take an answer, before it reads what init has proved.
        let goes_on = need(!r.is_dead && r.has_term && !r.is_lost && self.now < self.end(r.val), name);
        let own = need(self.own(step.r, step.q, k).is_some(), "6 a write of its own that was not answered");
        let is_mine = |k: V| self.version(k).kind == Kind::Held && self.version(k).hold == step.r;
        match what {
            What::Passes => {
                let in_time = |x: &Replica| t < self.end(x.ival) || x.has_term && t < self.end(x.val);
                need(t >= self.now, name)?;
                need(self.running.iter().all(|x| in_time(&self.replicas[*x])), "3 kill at H")
            }
            What::Sees => alive.and(need(self.has(k), name)).and(need(k >= r.latest, "16 nothing older")),
            What::SeesLateAbsence => {
                let is_known = r.memory.known.iter().any(|term| self.version(*term).uid == r.memory.uid);
                alive.and(need(!is_known, "16 an absence is no older than D"))
            }
            What::Takes => idle.and(self.asks_anew(step)).and_then(|()| self.may_take(step, r)),
            What::TakesAgain => {
                let is_late = is_mine(base) && self.version(base).spec == r.late;
                idle.and(self.asks_anew(step)).and(need(is_late, name))
            }
            What::Holds => {
                let is_free = matches!(self.version(base).kind, Kind::Free | Kind::Released | Kind::Nobody);
                idle.and(self.asks_anew(step)).and(need(is_free && step.asks >= r.memory.longest, name))
            }
            What::Creates => idle.and(self.asks_anew(step)).and(need(step.asks >= r.memory.longest, name)),
            What::PeerTakes => {
                let is_idle = r.is_polite && !(r.has_term || r.releases || r.init_leads);
                alive.and(need(is_idle, name)).and(self.asks_anew(step)).and_then(|()| self.may_peer_take(step, r))
            }
            What::Begins => {
                let is_idle = need(!(r.has_term || r.releases || r.init_leads), name);
                alive.and(is_idle).and(own).and_then(|()| need(self.now < self.end(k), "1 from the send"))
            }
            What::IsLate => alive.and(need(!(r.has_term || r.releases || r.init_leads), name)).and(own),
            What::Renews => goes_on.and(self.asks_anew(step)).and(need(is_mine(base), name)),
            What::Extends => goes_on.and(own),
            What::Forgets => Ok(()),
            What::Loses => alive.and(need(r.has_term, name)),
            What::Voids => alive.and(need(r.has_term && r.is_proved, "8 proof")),
            What::Releases => {
                let own_term = need(is_mine(base), "8 its own term's");
                alive.and(need(r.releases, name)).and(self.asks_anew(step)).and(own_term)
            }
            What::Follows => alive.and(need(r.releases || r.has_term && r.is_proved, name)),
            What::InitLeads => alive.and(need(r.lead, name)),
            What::InitExtends => {
                let is_told = r.is_open && r.extensions.contains(&k) && self.version(k).tv == self.version(r.ival).tv;
                alive.and(need(is_told, name))
            }
            What::Starts => {
                alive.and(need(r.is_open, "8 nothing starts before the next Lead"))?;
                need(self.now < self.end(r.ival), "15 before S")
            }
            What::Stops => need(self.runs(step.r), name),
            What::Proves => {
                alive.and(need(r.init_leads && r.has_term, name)).and(need(!self.runs(step.r), "8 everything is gone"))
            }
            What::NextElector => alive.and(need(!self.runs(step.r) || self.now < self.end(r.ival), name)),
            What::Dies => alive,
            What::Obituary => {
                need(r.is_dead, "20 the pidfd is readable").and(self.asks_anew(step)).and(need(is_mine(base), "20 that identity"))
            }
            What::StoresRenewal => self.is_stored(step, &[Ask::Renew]),
            What::StoresTake => self.is_stored(step, &[Ask::Take]),
            What::StoresRelease => self.is_stored(step, &[Ask::Release]).and(need(!self.keeps_a_name(step), name)),
            What::StoresPeersRelease => self.is_stored(step, &[Ask::Release]).and(need(self.keeps_a_name(step), name)),
            What::StoresNobody => self.is_stored(step, &[Ask::Hold]).and(need(k == 0, "14 nobody's new renewTime")),
            What::StoresCreation => {
                let is_asked = step.q.and_then(|q| self.requests.get(&q)).is_some_and(|request| request.ask == Ask::Create);
                need(is_asked && top.kind == Kind::Absent, name)
            }
            What::Empties | What::Steals | What::DropsName => is_there.and(self.is_fair(top)),
            What::Deletes | What::Labels => is_there,
            What::StrangerCreates => need(top.kind == Kind::Absent, name),
            What::StrangerReleases => {
                let forged = top.is_dropped && !self.are_all_over();
                need(top.kind == Kind::Foreign && !top.is_named, name)?;
                need(!forged, "assumed: nobody forges the mark of a release")
            }
            What::Unsets => need(top.kind == Kind::Held, name),
            What::EditsDuration => {
                need(top.kind == Kind::Held, name)?;
                need(t >= self.replicas[top.hold].d, "assumed: nobody shortens a duration")
            }
        }
    }

    /// Checks that the law allowed this step at that time; an error says what it breaks.
    pub fn allows_at(&mut self, step: &Step, at: Ns) -> Result<(), Illegal> {
        let now = std::mem::replace(&mut self.now, at);
        let allowed = self.allows(step);
        self.now = now;
        allowed
    }

    /// A request is new, and says what no other of that replica says.
    fn asks_anew(&self, step: &Step) -> Result<(), Illegal> {
        let is_new = step.q.is_some_and(|q| !self.requests.contains_key(&q)) && self.has(step.base);
        need(is_new, step.what.name())?;
        need(!self.replicas[step.r].said.contains(&step.text), "1 no two equal writes")
    }

    fn may_take(&self, step: &Step, r: &Replica) -> Result<(), Illegal> {
        let base = self.version(step.base);
        need(base.spec == r.seen, "11 what was seen")?;
        need(r.memory.until <= self.now, "14 memory")?;
        match base.kind {
            Kind::Released => {}
            Kind::Held | Kind::Foreign if base.dur == 0 => need(r.since + r.memory.longest <= self.now, "11 no duration")?,
            Kind::Held | Kind::Foreign => need(r.since + base.dur <= self.now, "11 wait")?,
            Kind::Nobody => {
                need(base.dur >= r.memory.longest, step.what.name())?;
                need(r.since + base.dur <= self.now, "11 wait")?;
            }
            Kind::Free => need(false, "14 a free Lease is written as nobody's")?,
            Kind::Absent => need(false, step.what.name())?,
        }
        let is_plain = base.kind == Kind::Held && base.dur > 0 || base.kind == Kind::Released && !base.is_orphan;
        let is_met = |k: &V| {
            let claim = self.version(*k);
            let is_as_long = !base.is_orphan && !base.is_dropped && self.replicas[claim.hold].d <= r.d;
            r.memory.known.contains(&claim.tv) || self.is_over(*k) || is_as_long
        };
        need(is_plain || self.claims.iter().all(is_met), "assumed: it has seen the term, or its own D is as long")
    }

    fn may_peer_take(&self, step: &Step, r: &Replica) -> Result<(), Illegal> {
        let base = self.version(step.base);
        need(base.spec == r.seen && base.kind != Kind::Absent, step.what.name())?;
        if self.are_all_over() || base.kind == Kind::Released && !base.is_orphan {
            return Ok(());
        }
        let is_held = base.kind == Kind::Held && base.dur > 0 || base.kind == Kind::Nobody;
        let waited = is_held && r.since + base.dur <= self.now;
        need(waited, "assumed: client-go does not run at once on what was not given back")?;
        let is_as_long = |k: &V| self.is_over(*k) || self.replicas[self.version(*k).hold].d <= base.dur;
        let hides = base.kind == Kind::Nobody && !self.claims.iter().all(is_as_long);
        need(!hides, "assumed: nobody holds for as long as the term that is hidden")
    }

    /// A request of this kind arrives, and the Lease is as it was when it was sent.
    fn is_stored(&self, step: &Step, asks: &[Ask]) -> Result<(), Illegal> {
        let request = step.q.and_then(|q| self.requests.get(&q)).filter(|request| asks.contains(&request.ask));
        need(request.is_some(), step.what.name())?;
        let is_there = self.version(self.top).kind != Kind::Absent;
        need(is_there, "12 uid")?;
        need(request.is_some_and(|request| request.base == self.top), "12 compare and swap")
    }

    /// A client-go leaves the name of another beside its mark.
    fn keeps_a_name(&self, step: &Step) -> bool {
        let who = step.q.and_then(|q| self.requests.get(&q)).map(|request| request.who);
        who.is_some_and(|who| self.replicas[who].is_polite) && self.version(self.top).is_named
    }

    fn is_fair(&self, top: &Version) -> Result<(), Illegal> {
        let is_peers = top.kind == Kind::Held && self.replicas[top.hold].is_polite && !top.is_named;
        need(!is_peers || self.are_all_over(), "assumed: nobody steals from a client-go that leads")
    }
}
