"""Increments the number in a file some times, each time under a Lock of grelmicro: kubeconfig, namespace, lock, file, times."""

import asyncio
import pathlib
import sys

from grelmicro.sync.kubernetes import KubernetesSyncBackend
from grelmicro.sync.lock import Lock

kubeconfig, namespace, name, path, times = sys.argv[1:]
file = pathlib.Path(path)


async def main() -> None:
    async with KubernetesSyncBackend(namespace, kubeconfig=kubeconfig) as backend:
        lock = Lock(name, backend=backend, lease_duration=10, retry_interval=0.05)
        for _ in range(int(times)):
            async with lock:
                count = int(file.read_text())
                await asyncio.sleep(0.1)
                file.write_text(f"{count + 1}\n")
            await asyncio.sleep(0.1)


asyncio.run(main())
