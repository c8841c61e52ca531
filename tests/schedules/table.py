"""Prints, for each schedule of standard input in each zone, how many fires the references have in a year, and their hash.

Argument: the program that prints the fires of robfig/cron.
"""

import subprocess
import sys
from datetime import datetime, timezone
from zoneinfo import ZoneInfo

from croniter import croniter

ZONES = ["Europe/Berlin", "America/New_York", "America/Santiago", "Asia/Kolkata", "Pacific/Auckland"]
YEAR = 2027
START, END = (int(datetime(year, 1, 1, tzinfo=timezone.utc).timestamp()) for year in (YEAR, YEAR + 1))


def croniters(schedule, zone):
    times = croniter(schedule, datetime.fromtimestamp(START - 60, ZoneInfo(zone)))
    while (fire := int(times.get_next(datetime).timestamp())) < END:
        if fire >= START:
            yield fire


def entry(fires):
    """Returns the number of fires, and the FNV-1a hash of their seconds since 1970."""
    value = 0xCBF29CE484222325
    for byte in b"".join(fire.to_bytes(8, "little") for fire in fires):
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{len(fires)}:{value:016x}"


schedules = sys.stdin.read().splitlines()
command = [sys.argv[1], "\n".join(schedules), " ".join(ZONES), str(YEAR)]
lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
kubernetes = iter([int(fire) for fire in line.split()] for line in lines)
print(f"# By ./make: {YEAR}, croniter and robfig/cron in {', '.join(ZONES)}")
for schedule in schedules:
    row = [f"{entry(list(croniters(schedule, zone)))},{entry(next(kubernetes))}" for zone in ZONES]
    print(schedule, *row, sep=" | ")
