"""Cost of many LoraAdapters of one service, with the operator's placer at a real API server.

    python -m benchmarks.cluster.adapter_objects [--counts 20,2000] [--engines 3] [--slots 16]

Engines answer only the adapter routes. Per number of adapters it prints the processor time of a pass, the
writes while nothing changes, and for changes of one adapter the time until its status follows and the
requests to the API server. Exits with 1 if anything is written while nothing changes.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.http_load import closed_loop
from benchmarks.options import option_parser
from tests.support.cluster.adapter_stand import AdapterStand, adapter_stand
from tests.support.cluster.crds import install_crds
from tests.support.cluster.manifests import adapter_manifest

from penstock.clients.kubernetes.client import Kube, api_client
from penstock.clients.kubernetes.kubeconfig import load_configuration
from penstock.clients.kubernetes.resources import LORA_ADAPTERS, NAMESPACES
from penstock.local import cluster as clusters

PASSES, CHANGES = 20, 15
# Time without a change of any kind, in seconds: several passes of the placer.
QUIET_S = 10.0


class Requests:
    """Requests of the operator to the API server, by verb."""

    def __init__(self) -> None:
        self.verbs: list[str] = []

    def observe(self, verb: str, _status: int | None, _seconds: float) -> None:
        self.verbs.append(verb)

    @contextmanager
    def counted(self) -> Iterator[list[str]]:
        """The verbs of the requests in the block, after its end. Watches are left out."""
        start, found = len(self.verbs), list[str]()
        yield found
        found += [verb for verb in self.verbs[start:] if verb not in ("watch", "list")]


async def measure(stand: AdapterStand, kube: Kube, requests: Requests, count: int) -> int:
    """Print the figures of a number of adapters. Returns the writes while nothing changed."""
    await _create(kube, stand.namespace, count)
    await _settle(kube, stand.namespace, count)
    await asyncio.sleep(3)
    passes_ms = await _passes_ms(stand)
    with requests.counted() as quiet:
        await asyncio.sleep(QUIET_S)
    latencies_s, costs = [], list[int]()
    for number in range(CHANGES):
        with requests.counted() as verbs:
            latencies_s.append(await _change(kube, stand.namespace, f"a{number}", number))
        costs.append(len(verbs))
    print(
        f"{count:5} adapters: {statistics.median(passes_ms):6.1f} ms of processor time in a pass "
        f"(at most {max(passes_ms):.1f}), {len(quiet)} writes in {QUIET_S:g} s without a change; a change "
        f"of one: status after {statistics.median(latencies_s):.2f} s (at most {max(latencies_s):.2f}), "
        f"{statistics.median(costs):g} requests"
    )
    return len(quiet)


async def _create(kube: Kube, namespace: str, count: int) -> None:
    async def create(number: int) -> None:
        body = adapter_manifest(f"a{number}", "chat", f"pvc://adapters/a{number}")
        await kube.create(LORA_ADAPTERS, namespace, body)

    await closed_loop(32, range(count), create)


async def _settle(kube: Kube, namespace: str, count: int) -> None:
    """Wait until all statuses are about the present spec."""
    started_s = time.monotonic()
    while True:
        found, _ = await kube.list(LORA_ADAPTERS, namespace)
        done = sum(each["status"]["observedGeneration"] == 1 for each in found)
        if done == count:
            print(f"{count:5} statuses were written {time.monotonic() - started_s:.1f} s after")
            return
        await asyncio.sleep(0.5)


async def _passes_ms(stand: AdapterStand) -> list[float]:
    """Processor time of passes, with the engines of this process, in milliseconds."""
    assert stand.placer is not None
    found = []
    for _ in range(PASSES):
        started_s = time.process_time()
        await stand.placer.tick()
        found.append(1000 * (time.process_time() - started_s))
    return found


async def _change(kube: Kube, namespace: str, name: str, number: int) -> float:
    """Change an adapter's model name. Returns the time until its status has the name, in seconds."""
    wanted = f"{name}-{number}"
    spec = {"spec": {"model": {"name": wanted}}}
    await kube.merge(LORA_ADAPTERS, namespace, name, spec, manager="benchmark")
    started_s = time.monotonic()
    while True:
        body = await kube.get(LORA_ADAPTERS, namespace, name)
        if body["status"].get("modelName") == wanted:
            return time.monotonic() - started_s
        await asyncio.sleep(0.01)


async def main(counts: list[int], engines: int, slots: int) -> int:
    writes = 0
    with clusters.temporary("adapters", say=print) as cluster:
        requests = Requests()
        configuration = await load_configuration(cluster.kubeconfig)
        async with (
            Kube(api_client(configuration, "benchmark")) as kube,
            Kube(api_client(configuration, "operator", requests.observe)) as operators,
        ):
            await install_crds(kube)
            for count in counts:
                namespace = f"adapters-{count}"
                body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
                await kube.create(NAMESPACES, None, body)
                async with adapter_stand(operators, namespace) as stand:
                    for number in range(engines):
                        await stand.add_engine(f"chat-{number}", slots)
                    writes += await measure(stand, kube, requests, count)
    return writes


if __name__ == "__main__":
    options = option_parser(__doc__, counts="20,2000", engines=3, slots=16).parse_args()
    sizes = [int(each) for each in options.counts.split(",")]
    sys.exit(1 if asyncio.run(main(sizes, options.engines, options.slots)) else 0)
