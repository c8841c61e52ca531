import mmap
import os
import struct
import sys
import time

page = mmap.mmap(int(os.environ["TENURE_TERM_FD"]), 4096, mmap.MAP_SHARED, mmap.PROT_READ)
if struct.unpack_from("<II", page) != (0x554E4554, 1):
    sys.exit(78)
# A memoryview reads each number as a whole; struct.unpack_from("<Q") does not.
numbers = memoryview(page).cast("Q")


def now():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def held():
    hard = numbers[4]
    return now() < hard


def held_token():
    """The token of the term that is held; 0 if there is none."""
    for _ in range(1000):
        before = numbers[1]
        token, hard = numbers[5], numbers[4]
        if before % 2 == 0 and numbers[1] == before:
            return token if now() < hard else 0
    return 0


while True:
    token = held_token()
    print(f"writes with token {token}" if token and held() else "waits", flush=True)
    time.sleep(0.1)
