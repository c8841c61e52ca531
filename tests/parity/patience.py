"""Lets a busy machine run dumb-init's suite: no test fails because a step took long.

The forwarded signals lack those of faults, which tenure takes as its own.
"""

import signal

import testing

FAULTS = {signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS}

testing.NORMAL_SIGNALS -= FAULTS
testing.sleep_until.__defaults__ = (10,)


def pytest_runtest_logreport(report):
    if report.failed or report.when == "call":
        print(f"\n{report.outcome} {report.nodeid}", flush=True)
