"""Says whether grelmicro's TaskLock would run: kubeconfig, namespace, name."""

import asyncio
import sys

from anyio import WouldBlock
from grelmicro.sync.kubernetes import KubernetesSyncBackend
from grelmicro.sync.tasklock import TaskLock

kubeconfig, namespace, name = sys.argv[1:]


async def main() -> None:
    async with KubernetesSyncBackend(namespace, kubeconfig=kubeconfig) as backend:
        try:
            async with TaskLock(name, backend=backend, min_lock_seconds=1, max_lock_seconds=60):
                print("runs")
        except WouldBlock:
            print("held")


asyncio.run(main())
