#!/usr/bin/env python3
"""Proves the queries of `law.py smt DIR` by cvc5, which shares no code with Z3.

  again.py DIR
"""
import pathlib, sys, time
import cvc5

# Quantifiers are instantiated by enumeration too, where a query needs it.
WAYS = ({}, {"enum-inst": "true"}, {"full-saturate-quant": "true"})
LIMIT = 60_000


def answer(path):
    """Returns what cvc5 says of this query."""
    said = "unknown"
    for way in WAYS:
        solver = cvc5.Solver(cvc5.TermManager())
        for name, value in {"tlimit-per": str(LIMIT), **way}.items():
            solver.setOption(name, value)
        parser = cvc5.InputParser(solver)
        parser.setFileInput(cvc5.InputLanguage.SMT_LIB_2_6, str(path))
        while not (command := parser.nextCommand()).isNull():
            said = command.invoke(solver, parser.getSymbolManager()).strip() or said
        if said in ("sat", "unsat"):
            break
    return said


if __name__ == "__main__":
    paths, begun = sorted(pathlib.Path(sys.argv[1]).glob("*.smt2")), time.time()
    said = {path: answer(path) for path in paths}
    bad = [path for path in paths if said[path] != "unsat"]
    print(f"cvc5 {cvc5.__version__}: {len(paths)} queries, {time.time() - begun:.1f} s:", f"{len(bad)} FAIL" if bad or not paths else "PROVED")
    for path in bad:
        print("   ", path.read_text().splitlines()[0], said[path])
    sys.exit(bool(bad) or not paths)
