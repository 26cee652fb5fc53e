"""`python -m penstock.local.node CLUSTER`: run the node agent of a local cluster."""

import asyncio
import sys

from penstock.clients.kubernetes.client import connect
from penstock.clients.kubernetes.deep_objects import allow_deep_objects
from penstock.clients.machine.logs import configure as configure_logs
from penstock.local.node.agent import NodeAgent
from penstock.local.record import get


async def main(name: str) -> None:
    cluster = get(name)
    async with await connect(cluster.kubeconfig, user_agent="penstock-node") as kube:
        await NodeAgent(kube, cluster).run()


if __name__ == "__main__":
    allow_deep_objects()
    configure_logs("text")  # for a file that people read
    asyncio.run(main(sys.argv[1]))
