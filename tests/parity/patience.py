"""dumb-init's suite as a machine that does other things too can run it: nothing is missed because it took long.

Left out of the signals that are forwarded are those of faults, which tenure takes for its own.
"""

import signal

import testing

FAULTS = {signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS}

testing.NORMAL_SIGNALS -= FAULTS
testing.sleep_until.__defaults__ = (10,)


def pytest_runtest_logreport(report):
    if report.failed or report.when == "call":
        print(f"\n{report.outcome} {report.nodeid}", flush=True)
