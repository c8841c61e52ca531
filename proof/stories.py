#!/usr/bin/env python3
"""Shows that the proof of law.py is about something: each transition happens, and each half-sentence is necessary.

Asks Z3 about the runs in stories.toml: each story happens, and does no harm. Each run of a half-sentence does harm in the law without
it. In the whole law, that run can happen up to the step that is called illegal there, and no further.

  stories.py [NAME]...    all, or those
"""
import pathlib, sys, tomllib
from z3 import *
import law

FILE = tomllib.loads(pathlib.Path(__file__).with_name("stories.toml").read_text())
REPLICAS = {name: Const(name, law.Rep) for name in "ABCF"}
REQUESTS = [Const(f"q{n}", law.Req) for n in range(8)]
KINDS = {"q": "Q", "v": "K", "t": "T", "on": "base", "for": "asks", "as": "text"}


def flat(steps):
    """The steps, with fragments and other stories in their places."""
    for step in steps:
        if not step.startswith("@"):
            yield step
            continue
        name, *values = step[1:].split()
        inner = FILE["fragments"].get(name) or FILE["stories"][name]
        yield from flat(line.format(*values) for line in inner)


def parse(step):
    """The transition and its arguments, by kind."""
    name, _, words = step.partition(": ")
    if name not in NAMES:
        name, words = step, ""
    arguments = {}
    for word in words.split():
        letters = word.rstrip("0123456789")
        kind = "R" if word in REPLICAS else KINDS[letters]
        arguments[kind] = word if kind == "R" else int(word[len(letters):])
    return name, arguments


def runs(steps, durations, off=(), goal=None):
    """Returns sat if this run can happen, from the start to the goal."""
    s, solver, r = law.fresh(), Solver(), Const("r", law.Rep)
    solver.set("timeout", 120_000)
    solver.add(*law.CONSTANTS, *law.start(s), ForAll(r, s.until(r) == 0), s.now == 0, Distinct(*REPLICAS.values()), Distinct(*REQUESTS))
    others = {given["Q"] for _, given in map(parse, steps) if "text" in given}
    solver.add(*(law.text(q) == n for n, q in enumerate(REQUESTS) if n not in others))
    solver.add(*(And(law.d(r) == durations[name], law.polite(r) == (name == "F")) for name, r in REPLICAS.items()))
    for n, step in enumerate(steps):
        name, given = parse(step)
        R, K, T = REPLICAS[given.get("R", "A")], IntVal(given.get("K", 0)), RealVal(given.get("T", 0))
        Q = REQUESTS[given["Q"]] if "Q" in given else Const(f"Q{n}", law.Req)
        solver.add(*(getattr(law, kind)(Q) == given[kind] for kind in ("base", "asks", "text") if kind in given))
        guard, after = next((guard, after) for action, guard, after in law.actions(s, off, (R, Q, K, T)) if action == name)
        solver.add(guard)
        s = after
    if goal is not None:
        solver.add(goal(s))
    return str(solver.check())


def harm(s):
    two = [And(s.run(x), s.run(y)) for x in REPLICAS.values() for y in REPLICAS.values() if x is not y]
    return Or(*two, Not(s.rose), And(s.lead(REPLICAS["A"]), s.run(REPLICAS["A"])))


NAMES = [name for name, _, _ in law.actions(law.fresh())]

if __name__ == "__main__":
    wanted, failed, happened = sys.argv[1:], False, set()
    for name, steps in FILE["stories"].items():
        steps = list(flat(steps))
        happened |= {parse(step)[0] for step in steps}
        if not wanted or name in wanted:
            can, harms = runs(steps, FILE["durations"]), runs(steps, FILE["durations"], goal=harm)
            failed |= (can, harms) != ("sat", "unsat")
            print(f"{name}: {can}; with harm: {harms}", flush=True)
    print("transitions in no story:", missing := set(NAMES) - happened)
    for entry in FILE["without"]:
        name, steps, n = entry["name"], list(flat(entry["steps"])), entry["illegal"]
        durations = {**FILE["durations"], **entry.get("durations", {})}
        if not wanted or name in wanted:
            found = runs(steps, durations, {name}, harm), runs(steps[:n - 1], durations), runs(steps[:n], durations)
            failed |= found != ("sat", "sat", "unsat")
            print(f"without {name!r}: harm: {found[0]}; with it, before {steps[n - 1]!r}: {found[1]}, and that step: {found[2]}", flush=True)
    sys.exit(failed or bool(missing))
