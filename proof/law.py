#!/usr/bin/env python3
"""Proves the law of src/law.rs: no two replicas run at once, and fencing tokens rise.

The law is a transition system, and Z3 proves an inductive invariant of it. There are any number of replicas, electors, requests, versions
and uids. Time is real and without bound, and each replica has a D of its own. The name of a transition begins with the number of the rule
that allows it; a transition of somebody else has no number. `need(NAME, ...)` is half a sentence of the law. `assume(NAME, ...)` is what
the law does not cover (docs/limits.md). stories.py leaves each out by its name, and shows a run that does harm without it.

  law.py            proves the lemmas and the law: twice, the second time with one D, without client-go, and with fewer assumptions
  law.py smt DIR    writes each query as SMT-LIB, for a second solver
"""
import sys, time
from types import SimpleNamespace
from z3 import *

Rep, Req = DeclareSort("Rep"), DeclareSort("Req")     # a replica: one life of a container, with an identity of its own; a request
I, R, B = IntSort(), RealSort(), BoolSort()
ABSENT, FREE, RELEASED, NOBODY, HELD, FOREIGN = range(6)
RENEW, TAKE, RELEASE, OBITUARY, HOLD, CREATE = range(1, 7)
UNSEEN, NO_LEASE = -1, 0                              # of `seen`: nothing yet; the Lease is absent

# Constants: D of each replica; whether it is a client-go that keeps client-go's rules; what a request says, fixed when it is made.
d, polite = Function('d', Rep, R), Function('polite', Rep, B)
what, who, base, sent, text, claimT, claimV, asks = (Function(n, Req, t) for n, t in (
    ("what", I), ("who", Rep), ("base", I), ("sent", R), ("text", I), ("claimT", R), ("claimV", I), ("asks", R)))
CONSTANTS = [ForAll(Const("r", Rep), d(Const("r", Rep)) > 0)]

FIELDS = dict(
    # The Lease. Version k is the resourceVersion; versions are never changed, so the history is part of the state.
    now=R, top=I, kind=(I, I), hold=(I, Rep), by=(I, Req), snd=(I, R), com=(I, R), dur=(I, R), spec=(I, I), uid=(I, I),
    ts=(I, R), tv=(I, I),          # of a claim: when its term's take was sent, and the version by which that took
    # A name in tenure.dev/holder. Ghosts: a stranger's POST made it, or a stranger has removed the name, and no replica has held it since.
    ann=(I, B), orphan=(I, B), dropped=(I, B),
    # The elector (src/election): it has a term, which is lost, or proved over; it releases; the version that E counts from; the token.
    term=(Rep, B), lost=(Rep, B), proved=(Rep, B), rel=(Rep, B), val=(Rep, I), tok=(Rep, I), mem=(Req, B), late=(Rep, I),
    # What it sees (election/observation.rs): the spec, since when, the longest D known, until when memory lasts, the uid last seen held,
    # whether that holder was named, the newest version. Ghost: the terms whose D it has seen, by tv.
    seen=(Rep, I), since=(Rep, R), longest=(Rep, R), until=(Rep, R), heldU=(Rep, I), named=(Rep, B), seenV=(Rep, I), knows=(Rep, I, B),
    # Link and init (supervision/): Lead and Extend under way; init's term; whether it may start; its E; its token; the workload runs.
    lead=(Rep, B), ext=(Rep, I, B), iterm=(Rep, B), opn=(Rep, B), ival=(Rep, I), itok=(Rep, I), run=(Rep, B), dead=(Rep, B),
    pend=(Req, B),                 # was sent: it may arrive now, later, twice, or never
    last=I, lastBy=Rep, used=(Rep, I), rose=B)   # ghosts: the latest token that anything ran under, whose it was, each one's last; they rose


def fresh():
    make = lambda n, t: Function(n, *t) if isinstance(t, tuple) else Const(n, t)
    return SimpleNamespace(**{n: make(n, t) for n, t in FIELDS.items()})


def next_(s, **new):
    return SimpleNamespace(**{**vars(s), **new})


def put(f, *entry):
    *key, value = entry
    return lambda *x: If(And(*(a == b for a, b in zip(x, key))), value, f(*x))


def exists(s, k): return And(1 <= k, k <= s.top)
def held(s, k): return And(exists(s, k), s.kind(k) == HELD)
def end(s, k): return s.snd(k) + d(s.hold(k))
def waits(s, r, k): return If(s.dur(k) > 0, s.dur(k), s.longest(r))   # where no duration is recorded: the longest known
def live(s, r): return Or(s.lead(r), s.opn(r), And(s.term(r), Not(s.lost(r))))   # something of its term runs, may start, or is written
def current(s, r, k): return And(Or(s.seen(r) == UNSEEN, And(1 <= s.seen(r), s.kind(s.seen(r)) == HELD)), s.heldU(r) == s.uid(k), Implies(s.ann(k), s.named(r)), s.longest(r) >= d(s.hold(k)))


def over(s, k):
    """The claim of version k is over: no write, message or deadline that still counts comes from it."""
    h = s.hold(k)
    return Not(Or(s.mem(s.by(k)), And(s.opn(h), s.ival(h) == k), And(s.lead(h), s.tok(h) == k),
                  And(live(s, h), Or(s.val(h) == k, And(s.ext(h, k), s.tv(k) == s.tv(s.val(h)))))))


def fin(s, k, t): return Or(end(s, k) <= t, over(s, k))              # the claim has ended by t, or was given back, or died


def all_fin(s):
    k = Int("g")
    return ForAll(k, Implies(held(s, k), fin(s, k, s.now)))


def hidden_in(s, m):
    """Nobody holds version m for as long as any term that it hides."""
    k = Int("g")
    return ForAll(k, Implies(held(s, k), Or(fin(s, k, s.now), d(s.hold(k)) <= s.dur(m))))


def invariant(s):
    r, q, p, k, m, j, u = Const("r", Rep), Const("q", Req), Const("p", Req), Int("k"), Int("m"), Int("j"), Int("u")
    has, h = lambda k: exists(s, k), lambda k: held(s, k)
    kind, hold, ts, tv, com, uid, spec, ann = s.kind, s.hold, s.ts, s.tv, s.com, s.uid, s.spec, s.ann
    is_ = lambda k, *kinds: Or(*(kind(k) == x for x in kinds))
    same = lambda a, b: And(*(getattr(s, f)(a) == getattr(s, f)(b) for f in "kind hold by snd dur ts tv ann orphan dropped uid spec".split()))
    given = lambda q: Or(what(q) == RELEASE, what(q) == OBITUARY)
    mine = lambda q, k: And(h(k), hold(k) == who(q))
    return {
        # 1. What a version says.
        "top": And(s.top >= 1, kind(1) == ABSENT),
        "kinds": ForAll(k, Implies(has(k), And(0 <= kind(k), kind(k) <= FOREIGN, com(k) <= s.now))),
        "order": ForAll([k, m], Implies(And(has(k), has(m), k < m), com(k) <= com(m))),
        "claim": ForAll(k, Implies(h(k), And(Or(s.dur(k) <= 0, s.dur(k) >= d(hold(k))), who(s.by(k)) == hold(k), s.snd(k) == sent(s.by(k)), s.pend(s.by(k)),
                                             1 <= tv(k), tv(k) <= spec(k), ts(k) <= s.snd(k), s.snd(k) <= com(spec(k)),
                                             Or(And(what(s.by(k)) == TAKE, ts(k) == sent(s.by(k))),
                                                And(what(s.by(k)) == RENEW, ts(k) == claimT(s.by(k)), tv(k) == claimV(s.by(k))))))),
        "specs": ForAll(k, Implies(has(k), If(kind(k) == ABSENT, And(spec(k) == NO_LEASE, uid(k) == 0),
                                              And(2 <= uid(k), uid(k) <= k, If(kind(k) == FREE, spec(k) == -uid(k), And(1 <= spec(k), spec(k) <= k)))))),
        "names": ForAll(k, Implies(has(k), And(Implies(Or(kind(k) == NOBODY, And(kind(k) == HELD, Not(polite(hold(k))))), ann(k)),
                                               Implies(is_(k, RELEASED, ABSENT), Not(ann(k))), Implies(is_(k, HELD, NOBODY, ABSENT, RELEASED), Not(s.dropped(k))), Implies(is_(k, HELD, NOBODY, ABSENT), Not(s.orphan(k)))))),
        "copies": ForAll([k, j], Implies(And(has(k), 1 <= spec(k), spec(k) <= j, j <= k), same(j, k))),
        "uids": ForAll([j, k], Implies(And(has(j), has(k), j < k, kind(k) != ABSENT),
                                       If(uid(k) <= j, And(kind(j) != ABSENT, uid(j) == uid(k)), uid(j) < uid(k)))),
        # 2. Elector and init of one replica.
        "dead": ForAll(r, Implies(s.dead(r), Not(Or(s.term(r), s.lead(r), s.opn(r), s.iterm(r), s.run(r), s.rel(r))))),
        "stages": ForAll(r, And(Implies(s.run(r), s.opn(r)), Implies(s.opn(r), s.iterm(r)), Implies(s.iterm(r), Or(s.term(r), s.rel(r))),
                                Implies(s.term(r), And(Not(s.rel(r)), Or(s.lead(r), s.iterm(r)))), Implies(s.rel(r), Not(live(s, r))),
                                Implies(s.lead(r), And(s.term(r), Not(s.iterm(r)))), Implies(s.proved(r), And(s.term(r), s.iterm(r), Not(s.opn(r)))),
                                Implies(And(s.term(r), Not(live(s, r))), Or(s.lost(r), s.proved(r))))),
        "elector": ForAll(r, Implies(s.term(r), And(h(s.val(r)), hold(s.val(r)) == r, h(s.tok(r)), hold(s.tok(r)) == r, tv(s.tok(r)) == tv(s.val(r))))),
        "init": ForAll(r, Implies(s.iterm(r), And(h(s.ival(r)), hold(s.ival(r)) == r, h(s.itok(r)), hold(s.itok(r)) == r, tv(s.itok(r)) == tv(s.ival(r)),
                                                  Implies(s.term(r), tv(s.val(r)) == tv(s.ival(r)))))),
        "link": ForAll([r, k], Implies(s.ext(r, k), And(h(k), hold(k) == r))),
        "link terms": ForAll([q, k, j], Implies(And(s.mem(q), what(q) == TAKE, h(k), s.by(k) == q, s.ext(who(q), j)), tv(j) < tv(k))),
        "memory of writes": ForAll(q, Implies(s.mem(q), And(s.pend(q), Not(s.dead(who(q))), Or(
            And(what(q) == TAKE, Not(Or(s.term(who(q)), s.iterm(who(q)), s.rel(who(q))))),
            And(what(q) == RENEW, s.term(who(q)), claimV(q) == tv(s.val(who(q)))))))),
        "H": ForAll(r, Implies(s.run(r), Or(s.now < end(s, s.ival(r)), And(s.term(r), s.now < end(s, s.val(r)))))),
        # 3. The heart: what is later in the Lease begins after what is earlier has ended.
        "apart": ForAll([k, m], Implies(And(h(k), h(m), k < m, tv(k) != tv(m)), fin(s, k, ts(m)))),
        "nameless": ForAll([k, m], Implies(And(h(k), has(m), k < m, Not(is_(m, HELD, ABSENT)), Not(ann(m)), Not(s.orphan(m)), Not(s.dropped(m))), fin(s, k, com(m)))),
        "orphans": ForAll([k, m], Implies(And(h(k), has(m), k < m, s.orphan(m)), uid(k) < uid(m))),
        "dropped": ForAll([k, m], Implies(And(h(k), has(m), k < m, Not(is_(m, HELD, ABSENT)), Not(ann(k))), Or(uid(k) < uid(m), fin(s, k, com(m))))),
        "chain": ForAll([k, j], Implies(And(h(k), tv(k) <= j, j <= k), And(kind(j) == HELD, tv(j) == tv(k), hold(j) == hold(k), uid(j) == uid(k), ann(j) == ann(k)))),
        # 4. Requests that are under way.
        "requests": ForAll(q, Implies(s.pend(q), And(has(base(q)), sent(q) <= s.now, com(base(q)) <= sent(q), RENEW <= what(q), what(q) <= CREATE))),
        "texts": ForAll([q, p], Implies(And(s.pend(q), s.pend(p), who(q) == who(p), text(q) == text(p)), q == p)),
        "takes": ForAll([q, k], Implies(And(s.pend(q), what(q) == TAKE, h(k), k <= base(q)), fin(s, k, sent(q)))),
        "renewals": ForAll([q, k], Implies(And(s.pend(q), what(q) == RENEW, h(k), k <= base(q)), If(k < claimV(q), fin(s, k, claimT(q)), And(tv(k) == claimV(q), hold(k) == who(q))))),
        "renewal": ForAll([q, k], Implies(And(s.pend(q), what(q) == RENEW, claimV(q) <= k, k <= base(q)), kind(k) == HELD)),
        "late": ForAll([r, k, m], Implies(And(h(m), spec(m) == s.late(r), hold(m) == r, h(k), hold(k) == r, k <= m), Not(s.mem(s.by(k))))),
        "renewals of": ForAll(q, Implies(And(s.pend(q), what(q) == RENEW), And(1 <= claimV(q), claimV(q) <= s.top, claimT(q) <= sent(q)))),
        "releases": ForAll([q, k], Implies(And(s.pend(q), given(q), mine(q, k), k <= base(q)), over(s, k))),
        "release of": ForAll(q, Implies(And(s.pend(q), given(q)), And(kind(base(q)) == HELD, hold(base(q)) == who(q)))),
        "nobody": ForAll(q, Implies(And(s.pend(q), Or(what(q) == HOLD, what(q) == CREATE)), 
            Implies(what(q) == HOLD, is_(base(q), FREE, RELEASED, NOBODY)))),
        "bases": ForAll(q, Implies(And(s.pend(q), Or(what(q) == TAKE, what(q) == RENEW)), kind(base(q)) != ABSENT)),
        # 5. What a follower has seen.
        "sight": ForAll(r, And(0 <= s.seenV(r), s.seenV(r) <= s.top, s.seen(r) <= s.seenV(r), s.since(r) <= s.now, d(r) <= s.longest(r), 0 <= s.heldU(r), s.late(r) <= s.top,
                               Implies(1 <= s.seen(r), And(com(s.seen(r)) <= s.since(r), spec(s.seen(r)) == s.seen(r))),
                               Implies(s.seen(r) == NO_LEASE, s.heldU(r) == 0))),
        "displaced": ForAll(r, Implies(And(1 <= s.seen(r), kind(s.seen(r)) == FOREIGN, ann(s.seen(r)), Not(polite(r))), s.until(r) >= com(s.seen(r)) + d(r))),
        "held": ForAll(r, Implies(1 <= s.seen(r), And(Implies(is_(s.seen(r), HELD, FOREIGN, NOBODY), s.heldU(r) == uid(s.seen(r))),
                                                      Or(s.heldU(r) == 0, s.heldU(r) == uid(s.seen(r)))))),
        "knows": ForAll([r, u], Implies(s.knows(r, u), And(u <= s.seenV(r), Implies(And(h(s.top), tv(s.top) == u), current(s, r, s.top))))),
        "memory": ForAll([r, k], Implies(And(h(k), s.knows(r, tv(k)), Not(polite(r))), Or(fin(s, k, s.now), current(s, r, k), s.until(r) >= end(s, k)))),
        # 6. Tokens.
        "last": And(0 <= s.last, s.last <= s.top, Implies(s.last >= 1, And(h(s.last), hold(s.last) == s.lastBy))),
        "tokens": ForAll([q, k], Implies(And(s.mem(q), what(q) == TAKE, h(k), s.by(k) == q, s.last >= 1, s.lastBy == who(q)), s.last < k)),
        "token of a term": ForAll(r, Implies(And(s.last >= 1, s.lastBy == r), And(Implies(s.lead(r), s.last < s.tok(r)), Implies(s.opn(r), s.last <= s.itok(r))))),
        "tokens used": ForAll([q, k], And(s.used(who(q)) <= s.top, Implies(And(s.mem(q), what(q) == TAKE, h(k), s.by(k) == q), s.used(who(q)) < k),
                                          Implies(s.lead(who(q)), s.used(who(q)) < s.tok(who(q))))),
    }


def safety(s):
    a, b = Consts("a b", Rep)
    q = Const("q", Req)
    return {"no two run at once": ForAll([a, b], Implies(And(s.run(a), s.run(b)), a == b)),
            "no term begins beside another of its replica": ForAll(a, Implies(s.lead(a), Not(s.run(a)))),
            "nothing is given back that runs": ForAll(q, Implies(And(s.pend(q), Or(what(q) == RELEASE, what(q) == OBITUARY), base(q) == s.top), Not(s.run(who(q))))),
            "tokens rise": s.rose}


def start(s):
    r, q, k = Const("r", Rep), Const("q", Req), Int("k")
    no = [s.term, s.lost, s.proved, s.rel, s.lead, s.iterm, s.opn, s.run, s.dead]
    return [s.top == 1, s.kind(1) == ABSENT, s.spec(1) == NO_LEASE, s.uid(1) == 0, Not(s.ann(1)), Not(s.orphan(1)), Not(s.dropped(1)), s.com(1) <= s.now, s.last == 0, s.rose,
            ForAll(r, And(*(Not(f(r)) for f in no), s.seen(r) == UNSEEN, s.seenV(r) == 0, s.since(r) <= s.now, s.heldU(r) == 0, s.late(r) == UNSEEN, s.used(r) == 0,
                       s.longest(r) == d(r))),
            ForAll([r, k], Not(Or(s.ext(r, k), s.knows(r, k)))), ForAll(q, Not(Or(s.pend(q), s.mem(q))))]


def actions(s, off=(), bound=None, strict=False):
    """Yields (name, guard, next state). `strict`: every replica is a tenure, all have one D, and nothing is assumed of others."""
    on = lambda name: name not in off
    need = lambda name, condition: condition if on(name) else BoolVal(True)
    assume = lambda name, condition: BoolVal(True) if strict or name in off else condition
    r, q, k, t = bound or (Const("R", Rep), Const("Q", Req), Int("K"), Real("T"))
    x, g, y = Const("x", Rep), Int("g"), Const("y", Req)
    alive, ours, new, top, now = Not(s.dead(r)), And(Not(s.dead(r)), Not(polite(r))), s.top + 1, s.top, s.now
    has, h = exists(s, k), held(s, k)
    differs = need("1 no two equal writes", ForAll(y, Implies(And(s.pend(y), who(y) == r), text(y) != text(q))))
    ask = lambda w, *more: And(differs, Not(s.pend(q)), Not(s.mem(q)), who(q) == r, sent(q) == now, what(q) == w, exists(s, base(q)), *more)
    sends = lambda **more: next_(s, pend=put(s.pend, q, BoolVal(True)), **more)
    recall = put(s.mem, q, BoolVal(True))
    forget = lambda: (lambda y: And(s.mem(y), who(y) != r))
    idle = Not(Or(s.term(r), s.rel(r), s.iterm(r)))
    b, kb = base(q), s.kind(base(q))
    true, false = BoolVal(True), BoolVal(False)

    def write(kind, hold=None, dur=None, spec=new, ann=true, orphan=false, dropped=false, uid=None, **claim):
        """A new version of the Lease."""
        fields = dict(kind=IntVal(kind), com=now, spec=spec, ann=ann, orphan=orphan, dropped=dropped, uid=s.uid(top) if uid is None else uid, **claim)
        fields.update({} if hold is None else dict(hold=hold), **({} if dur is None else dict(dur=dur)))
        return next_(s, top=new, **{n: put(getattr(s, n), new, v) for n, v in fields.items()})

    # Rules 2, 3, 9, 10, 15 and the guards, by the lemma on clocks: time does not pass E while something runs. E is init's (ival) or, while
    # init is stopped, that of the second guard (val).
    yield "3 time passes", And(t >= now, need("3 kill at H", ForAll(x, Implies(s.run(x), Or(
        t < end(s, s.ival(x)), And(s.term(x), t < end(s, s.val(x)))))))), next_(s, now=t)

    # -- The follower.
    is_new = s.spec(k) != s.seen(r)
    another = And(s.heldU(r) != 0, s.heldU(r) != s.uid(k), s.kind(k) != ABSENT)
    displaced = And(s.kind(k) == FOREIGN, Or(s.ann(k), s.named(r) if on("14 a holder without the name that was seen") else BoolVal(False))) if on("14 held by another than named") else false
    absent = s.kind(k) == ABSENT if on("14 memory of absence") else false
    free = s.kind(k) == FREE if on("14 release mark") else false
    remembers = Or(And(is_new, Or(free, s.kind(k) == NOBODY, absent, displaced)), another if on("14 memory of another uid") else false)
    holder = Or(s.kind(k) == HELD, s.kind(k) == FOREIGN, s.kind(k) == NOBODY)
    most = lambda x, y: If(x > y, x, y)
    recorded = most(d(r), s.dur(k))
    longest = If(And(Or(s.kind(k) == HELD, s.kind(k) == FOREIGN), s.dur(k) > 0), recorded, If(s.kind(k) == NOBODY, most(s.longest(r), recorded), s.longest(r)))
    known = most(s.longest(r), longest) if on("14 the longest known") else d(r)
    yield "11 see a version", And(alive, has, need("16 nothing older", k >= s.seenV(r))), next_(
        s, seen=put(s.seen, r, s.spec(k)), seenV=put(s.seenV, r, k),
        since=put(s.since, r, If(is_new, now, s.since(r))) if on("11 from sight, unbroken") else s.since,
        until=put(s.until, r, If(remembers, most(now + known, s.until(r)), s.until(r))), longest=put(s.longest, r, longest),
        heldU=put(s.heldU, r, If(holder, s.uid(k), If(Or(s.kind(k) == ABSENT, another), 0, s.heldU(r)))),
        named=put(s.named, r, If(holder, s.ann(k), And(s.kind(k) != RELEASED, s.named(r)))),
        knows=put(s.knows, r, s.tv(k), Or(s.knows(r, s.tv(k)), And(s.kind(k) == HELD, s.dur(k) > 0))))
    # A late answer shows an absence that is over. Since then nobody has come first (14), for longer than an answer may take (T < D).
    yield "16 an absence that is over", And(alive, need("16 an absence is no older than D", ForAll(g, Implies(And(held(s, g), s.uid(g) == s.heldU(r)), Not(s.knows(r, s.tv(g))))))), next_(
        s, seen=put(s.seen, r, IntVal(UNSEEN)), since=put(s.since, r, now), heldU=put(s.heldU, r, IntVal(0)),
        until=put(s.until, r, most(now + s.longest(r), s.until(r))))
    waited = need("11 wait", s.since(r) + (waits(s, r, b) if on("11 no duration") else s.dur(b)) <= now)
    may = Or(s.kind(b) == RELEASED, And(Or(kb == HELD, kb == FOREIGN), waited),
             And(kb == NOBODY, s.dur(b) >= s.longest(r), waited))
    if not on("14 a free Lease is written as nobody's"):
        may = Or(may, And(kb == FREE, s.since(r) + d(r) <= now))
    if not on("14 release mark"):
        may = Or(may, kb == FREE)
    # Not covered: a replica that never saw a term, where the record shows that term no longer, and its own D is shorter, or a stranger has
    # created the Lease or removed the name.
    plain = Or(And(kb == HELD, s.dur(b) > 0), And(kb == RELEASED, Not(s.orphan(b))))
    met = assume("assumed: it has seen the term, or its own D is as long", Or(plain, ForAll(g, Implies(held(s, g), Or(
        s.knows(r, s.tv(g)), fin(s, g, now), And(Not(s.orphan(b)), Not(s.dropped(b)), d(s.hold(g)) <= d(r)))))))
    yield "12 take", And(ours, idle, ask(TAKE), need("11 what was seen", s.spec(b) == s.seen(r)), need("14 memory", s.until(r) <= now), may, met), sends(mem=recall)
    yield "12 write again what was proved late", And(ours, idle, ask(TAKE), s.spec(b) == s.late(r), kb == HELD, s.hold(b) == r), sends(mem=recall)
    yield "14 hold for nobody", And(ours, idle, ask(HOLD, asks(q) >= s.longest(r)), Or(kb == FREE, kb == RELEASED, kb == NOBODY)), sends()
    yield "14 create for nobody", And(ours, idle, ask(CREATE, asks(q) >= s.longest(r))), sends()
    # A client-go keeps rules of its own: it has no memory, takes what is free at once, and writes no name beside the holder. Assumed: it
    # takes what was not given back only when nobody else can run, and its program ends by a + D, and before it releases.
    as_long = assume("assumed: nobody holds for as long as the term that is hidden", hidden_in(s, b))
    at_once = assume("assumed: client-go does not run at once on what was not given back", all_fin(s))
    yield "client-go takes", And(alive, polite(r), idle, ask(TAKE), s.spec(b) == s.seen(r), kb != ABSENT, Or(
        And(Or(And(kb == HELD, s.dur(b) > 0), And(kb == NOBODY, as_long)), s.since(r) + s.dur(b) <= now), And(kb == RELEASED, Not(s.orphan(b))), at_once)), sends(mem=recall)

    # -- The term.
    # It reads version k, which says what its write q says. E counts from the send of q.
    own = And(alive, h, s.hold(k) == r, who(q) == r, text(q) == text(s.by(k)), need("6 a write of its own that was not answered", s.mem(q)))
    answered = put(s.snd, k, sent(q) if on("1 from the send") else now)
    took = And(own, what(q) == TAKE, Not(s.term(r)), Not(s.rel(r)), Not(s.iterm(r)))
    forgets = forget() if on("6 answered writes confirm nothing") else s.mem
    yield "12 begin a term", And(took, now < end(next_(s, snd=answered), k)), next_(
        s, term=put(s.term, r, true), lost=put(s.lost, r, false), proved=put(s.proved, r, false), val=put(s.val, r, k), tok=put(s.tok, r, k),
        lead=put(s.lead, r, true), mem=forgets, snd=answered)
    yield "12 proved late", took, next_(s, late=put(s.late, r, s.spec(k)), mem=forget())
    # It may write, and take an answer, before it reads what init has proved.
    goes_on = And(s.term(r), Not(s.lost(r)), now < end(s, s.val(r)))
    yield "7 renew", And(alive, goes_on, ask(RENEW, claimT(q) == s.ts(s.val(r)), claimV(q) == s.tv(s.val(r))),
                         kb == HELD, s.hold(b) == r), sends(mem=recall)
    yield "1 extend", And(own, what(q) == RENEW, goes_on), next_(
        s, val=put(s.val, r, If(s.snd(k) >= s.snd(s.val(r)), k, s.val(r))), ext=put(s.ext, r, k, true), mem=put(s.mem, q, false), snd=answered)
    yield "6 forget a write", BoolVal(True), next_(s, mem=put(s.mem, q, false))
    yield "4 lose", And(alive, s.term(r)), next_(s, lost=put(s.lost, r, true))
    ends = dict(term=put(s.term, r, false), proved=put(s.proved, r, false))
    yield "8 E is void", And(alive, s.term(r), need("8 proof", s.proved(r))), next_(s, rel=put(s.rel, r, true), mem=forgets, **ends)
    yield "8 release", And(alive, s.rel(r), ask(RELEASE), kb == HELD, need("8 its own term's", s.hold(b) == r)), sends()
    yield "4 follow again", And(alive, Or(s.rel(r), And(s.term(r), s.proved(r)))), next_(
        s, rel=put(s.rel, r, false), iterm=put(s.iterm, r, false), mem=forgets, **ends)

    # -- Init.
    yield "3 init is told to lead", And(alive, s.lead(r)), next_(
        s, lead=put(s.lead, r, false), iterm=put(s.iterm, r, true), opn=put(s.opn, r, true), ival=put(s.ival, r, s.tok(r)), itok=put(s.itok, r, s.tok(r)),
        used=put(s.used, r, s.tok(r)), rose=And(s.rose, s.used(r) < s.tok(r)))
    yield "3 init extends", And(alive, s.opn(r), s.ext(r, k), s.tv(k) == s.tv(s.ival(r))), next_(
        s, ival=put(s.ival, r, If(s.snd(k) >= s.snd(s.ival(r)), k, s.ival(r))), ext=put(s.ext, r, k, false))
    yield "15 start", And(alive, s.opn(r), need("15 before S", now < end(s, s.ival(r)))), next_(
        s, run=put(s.run, r, true), last=s.itok(r), lastBy=r, rose=And(s.rose, Or(s.last < s.itok(r), And(s.last == s.itok(r), Or(s.last == 0, s.lastBy == r)))))
    yield "stop", s.run(r), next_(s, run=put(s.run, r, false))
    yield "8 init proves", And(alive, s.iterm(r), s.term(r), need("8 everything is gone", Not(s.run(r)))), next_(
        s, proved=put(s.proved, r, true), opn=put(s.opn, r, false) if on("8 nothing starts before the next Lead") else s.opn)
    # Init has read all that its last elector sent, and what was not sent is lost. It looks at its deadlines (9), and starts the next one.
    yield "10 another elector", And(alive, Implies(s.run(r), now < end(s, s.ival(r)))), next_(
        s, lead=put(s.lead, r, false), ext=lambda x, k: And(s.ext(x, k), x != r), term=put(s.term, r, s.iterm(r)), lost=put(s.lost, r, Not(s.opn(r))),
        proved=put(s.proved, r, false), rel=put(s.rel, r, false), val=put(s.val, r, s.ival(r)), tok=put(s.tok, r, s.itok(r)), mem=forget(),
        seen=put(s.seen, r, IntVal(UNSEEN)), since=put(s.since, r, now), late=put(s.late, r, IntVal(UNSEEN)),
        until=s.until if on("14 handed to the next elector") else put(s.until, r, RealVal(0)),
        heldU=s.heldU if on("14 handed to the next elector") else put(s.heldU, r, IntVal(0)),
        longest=s.longest if on("14 handed to the next elector") else put(s.longest, r, d(r)))

    # -- The end of a replica, and its witness (20). Whoever it was, its requests may still arrive.
    gone = {n: put(getattr(s, n), r, false) for n in "run term lost proved rel lead iterm opn".split()}
    yield "die", alive, next_(s, dead=put(s.dead, r, true), mem=forget(), **gone)
    yield "20 obituary", And(need("20 the pidfd is readable", s.dead(r)), Not(polite(r)), ask(OBITUARY), kb == HELD, need("20 that identity", s.hold(b) == r)), sends()

    # -- The API server: a request arrives.
    cas = And(s.pend(q), need("12 compare and swap", b == top), s.kind(top) != ABSENT)
    if not on("12 uid"):
        cas = And(s.pend(q), Or(b == top, s.kind(top) == ABSENT))
    named = Or(s.ann(top), Not(polite(who(q)))) if on("14 the holder's name") else s.ann(top)
    claim = lambda ts, tv: write(HELD, hold=who(q), dur=d(who(q)), by=q, snd=sent(q), ts=ts, tv=tv, ann=named)
    keeps = And(polite(who(q)), s.ann(top))         # client-go leaves the name of another beside its mark: that is no mark
    yield "a renewal is stored", And(cas, what(q) == RENEW), claim(claimT(q), claimV(q))
    yield "a take is stored", And(cas, what(q) == TAKE), claim(sent(q), new)
    yield "a release is stored", And(cas, Or(what(q) == RELEASE, what(q) == OBITUARY), Not(keeps)), write(RELEASED, ann=false)
    yield "a release of client-go is stored", And(cas, what(q) == RELEASE, keeps), write(FREE, spec=-s.uid(top))
    # Version k is an older one that says the same; 0 is none.
    again = And(s.kind(k) == NOBODY, s.uid(k) == s.uid(top), exists(s, k)) if not on("14 nobody's new renewTime") else false
    yield "nobody is stored", And(cas, what(q) == HOLD, need("14 nobody's new renewTime", k == 0)), write(NOBODY, dur=asks(q), spec=If(again, s.spec(k), new))
    yield "nobody is created", And(s.pend(q), what(q) == CREATE, s.kind(top) == ABSENT), write(NOBODY, dur=asks(q), uid=new)

    # -- Others: people, and clients that keep no rules.
    plain = And(s.kind(top) == HELD, polite(s.hold(top)), Not(s.ann(top)))
    fair = assume("assumed: nobody steals from a client-go that leads", Implies(plain, all_fin(s)))
    present = s.kind(top) != ABSENT
    yield "somebody empties it", And(present, fair), write(FREE, spec=-s.uid(top), ann=s.ann(top), orphan=s.orphan(top), dropped=s.dropped(top))
    yield "somebody deletes it", present, write(ABSENT, spec=IntVal(NO_LEASE), uid=IntVal(0), ann=false)
    yield "a stranger writes it", And(present, fair, t >= 0), write(FOREIGN, dur=t, ann=s.ann(top), orphan=s.orphan(top), dropped=s.dropped(top))
    yield "a stranger drops the name", And(present, fair, BoolVal(not strict), t >= 0), write(FOREIGN, dur=t, ann=false, orphan=s.orphan(top), dropped=true)
    yield "a stranger creates it", And(Not(present), t >= 0, BoolVal(not strict)), write(FOREIGN, dur=t, ann=false, orphan=true, uid=new)
    forged = assume("assumed: nobody forges the mark of a release", Or(Not(s.dropped(top)), all_fin(s)))
    yield "a stranger releases it", And(s.kind(top) == FOREIGN, Not(s.ann(top)), forged), write(RELEASED, ann=false, orphan=s.orphan(top))
    same = {n: put(getattr(s, n), new, getattr(s, n)(top)) for n in "kind hold by snd dur spec ts tv ann orphan dropped uid".split()}
    yield "somebody labels it", present, next_(s, top=new, com=put(s.com, new, now), **same)
    yield "somebody removes the duration", s.kind(top) == HELD, next_(
        s, top=new, com=put(s.com, new, now), **{**same, "dur": put(s.dur, new, RealVal(0)), "spec": put(s.spec, new, new)})
    kept = need("assumed: nobody shortens a duration", t >= d(s.hold(top)))
    yield "somebody edits the duration", And(s.kind(top) == HELD, kept), next_(
        s, top=new, com=put(s.com, new, now), **{**same, "dur": put(s.dur, new, t), "spec": put(s.spec, new, new)})


# Z3 needs a fraction of a second for a query, but now and then loses its way. Another seed finds it.
TRIES = ({"smt.mbqi": False}, {}, {"smt.random_seed": 7}, {"smt.qi.eager_threshold": 50.0})


def check(given, clause, limit=20, tries=TRIES):
    """Returns "unsat" if the clause holds wherever `given` does."""
    for options in tries:
        solver = Solver()
        solver.set("timeout", limit * 1000)
        for name, value in options.items():
            solver.set(name, value)
        solver.add(*CONSTANTS, *given, Not(clause))
        answer = str(solver.check())
        if answer != "unknown":
            return answer
    return answer


def jobs(strict=False):
    """Yields (transition, clause, what is given, what follows)."""
    s, (r, x), k = fresh(), Consts("r x", Rep), Int("k")
    constants = [ForAll([r, x], d(r) == d(x)), ForAll(r, Not(polite(r)))] if strict else []
    alone = lambda s: {"no orphans": ForAll(k, Implies(exists(s, k), Not(Or(s.orphan(k), s.dropped(k)))))} if strict else {}
    clauses = lambda s: {**invariant(s), **alone(s), "tokens rise": s.rose}
    before = [*constants, *clauses(s).values()]
    for name, clause in clauses(s).items():
        yield ('start', name, [*constants, *start(s)], clause)
    for name, clause in safety(s).items():
        yield ('safety', name, before, clause)
    for action, guard, after in actions(s, strict=strict):
        for name, clause in clauses(after).items():
            yield action, name, [*before, guard], clause


def prove(strict=False):
    """Returns how many queries there were, those that are not proved, and the time."""
    begun, bad, count = time.time(), [], 0
    for action, name, given, clause in jobs(strict=strict):
        count += 1
        answer = check(given, clause)
        if answer != "unsat":
            bad.append(f"{action} / {name}: {answer}")
    return count, bad, time.time() - begun


def clocks():
    """The lemma by which the model uses real time: rates are within 1 +- rho, and whole nanoseconds are rounded as law.rs rounds them.
    From the send `a` to E at most D of real time passes, and from the sight `o` to takeable(o, D) at least D."""
    D, ppm, shown, margin = Ints("D ppm shown margin")
    real, part = Real("real"), lambda span: (span * ppm + 999_999) / 1_000_000          # as div_ceil
    given = [D > 0, 0 <= ppm, ppm < 1_000_000, real >= 0, shown >= 0, margin >= 0]
    slow = real * (1_000_000 - ppm) <= ToReal(shown) * 1_000_000                         # the holder's clock is slow: at least so fast
    fast = real * (1_000_000 + ppm) >= ToReal(shown) * 1_000_000                         # the follower's clock is fast: at most so fast
    hard = D - part(D) - margin                                                          # H - a; within killMargin of it everything is gone
    return {"holder": ([*given, shown <= hard + margin, slow], real <= ToReal(D)), "follower": ([*given, shown >= D + part(D), fast], real >= ToReal(D))}


def slices():
    """Rule 19: a slice is written with the version that was read, and a token no lower. So the token in it never falls."""
    token, top, read, mine = Function('token', I, I), Int("top"), Int("read"), Int("mine")
    return [1 <= read, read <= top, read == top, token(read) <= mine], token(top) <= mine


def times():
    """What follows from the settings that tenure accepts: floor((S - R) / (T + b)) >= 2, S < D and R <= D / 3. An answer is younger than D
    (16), and a leader that renews is never silent for D / 3 + T, by which `confirm-dead` believes nobody (20)."""
    D, R, T, b, S, sent, stored, later = Reals("D R T b S sent stored later")
    given = [R > 0, T > 0, b > 0, S < D, S - R >= 2 * (T + b), 3 * R <= D]
    renewed = [sent <= stored, later <= sent + R + T]                       # the next write is due R after the send, and stored within T
    return {"answers": (given, T < D), "silence": ([*given, *renewed], later - stored <= D / 3 + T)}


if __name__ == "__main__":
    print("z3", get_version_string(), flush=True)
    if sys.argv[1:2] == ["smt"]:
        for n, (action, name, given, clause) in enumerate(jobs()):
            solver = Solver()
            solver.add(*CONSTANTS, *given, Not(clause))
            with open(f"{sys.argv[2]}/{n:04}.smt2", "w") as file:
                file.write(f"; {action} / {name}\n(set-logic ALL)\n{solver.to_smt2()}")
        sys.exit()
    failed = False
    for name, (given, clause) in [*clocks().items(), *times().items(), ("slices", slices())]:
        answer = check(given, clause)
        failed |= answer != "unsat"
        print(f"lemma {name}: {'PROVED' if answer == 'unsat' else answer}", flush=True)
    for strict in (False, True):
        count, bad, took = prove(strict)
        failed |= bool(bad)
        print(f"law{', tenure alone and one D' if strict else ''}: {count} queries, {took:.1f} s:", "PROVED" if not bad else f"{len(bad)} FAIL")
        for line in bad:
            print("   ", line, flush=True)
    sys.exit(failed)
