"""Prints the names of the Leases of grelmicro's locks, one for each name of a JSON list on standard input."""

import json
import sys

from grelmicro.sync.kubernetes import _sanitize_lease_name
from grelmicro.sync.lock import Lock

prefix, *_ = sys.argv[1:]
locks = [Lock(name, env_prefix="X_") for name in json.load(sys.stdin)]
json.dump([_sanitize_lease_name(prefix + lock._lock_name) for lock in locks], sys.stdout)
