"""Makes all connections of the documented table, and compares which of them are possible."""

import asyncio
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.real_node.connection_pods import LABEL, PROBE, ProbePod
from benchmarks.real_node.connection_probe import DENIED, REACHED
from benchmarks.real_node.lab import Lab

from penstock.chart.connections.matrix import DESTINATIONS, SOURCES, Connection, Place
from penstock.chart.names import GATEWAY
from penstock.core.spec.service import Object
from penstock.local.record import API_PORT

# Requests to each destination that speaks HTTP.
PATHS: Mapping[str, Sequence[str]] = {
    "engine": ("/metrics", "/v1/completions", "/v1/load_lora_adapter"),
    "gateway": ("/v1/models",),
    "gateway-management": ("/metrics", "/penstock/feed"),
    "operator": ("/metrics",),
}
PROBE_WITHIN_S = 120


@dataclass(frozen=True, slots=True)
class Listener:
    """An address that belongs to a destination. node, pod: empty for one that is no pod's."""

    destination: str
    address: str
    port: int
    node: str = ""
    pod: str = ""

    def target(self) -> Object:
        """The target as the probe takes it."""
        protocol = {"dns": "dns", "api-server": "tls"}.get(self.destination, "http")
        paths = PATHS.get(self.destination, ("/",))
        return {"protocol": protocol, "address": self.address, "port": self.port, "paths": paths}


@dataclass(frozen=True, slots=True)
class Attempt:
    """A connection that was tried, and its outcome."""

    source: str
    listener: Listener
    origin: str
    outcome: str


def find_listeners(lab: Lab, places: Mapping[Place, str]) -> list[Listener]:
    """Find all addresses of all destinations, also those of Services."""
    found = [
        Listener(name, pod["status"]["podIP"], destination.port, pod["spec"]["nodeName"],
                 pod["metadata"]["name"])
        for name, destination in DESTINATIONS.items()
        if destination.place in places
        for pod in _pods(lab, places[destination.place], destination.labels)
        if _listens(pod, name)
    ]  # fmt: skip
    gateway = _service(lab, places["installation"], GATEWAY)
    found.append(Listener("gateway", gateway["clusterIP"], gateway["ports"][0]["port"]))
    dns = _service(lab, "kube-system", "kube-dns")
    found.append(Listener("dns", dns["clusterIP"], DESTINATIONS["dns"].port))
    server = _service(lab, "default", "kubernetes")
    found.append(Listener("api-server", server["clusterIP"], server["ports"][0]["port"]))
    found.append(Listener("api-server", lab.cluster.address, API_PORT))
    return found


async def try_connections(
    lab: Lab, places: Mapping[Place, str], probes: Sequence[ProbePod], listeners: Sequence[Listener]
) -> list[Attempt]:
    """Connect from every source to every address of every destination, at the same time."""
    own = [
        ProbePod(name, places[SOURCES[name].place], pod["metadata"]["name"])
        for name in ("gateway", "operator", "engine")
        for pod in _pods(lab, places[SOURCES[name].place], SOURCES[name].labels)
    ]
    slots = asyncio.Semaphore(6)  # each is a process of kubectl and one of Python

    async def from_pod(pod: ProbePod) -> list[Attempt]:
        async with slots:
            return await asyncio.to_thread(_try_from_pod, lab, pod, listeners)

    attempts = await asyncio.gather(*map(from_pod, [*own, *probes]))
    return [*(each for part in attempts for each in part), *_try_from_host(listeners)]


def wrong_cells(attempts: Iterable[Attempt], allowed: frozenset[Connection]) -> list[str]:
    """Describe each cell of the table that differs in one of its attempts, or that was not tried."""
    cells: dict[Connection, set[str]] = defaultdict(set)
    for each in attempts:
        cells[each.source, each.listener.destination].add(each.outcome)
    wrong = []
    for source in SOURCES:
        for destination in DESTINATIONS:
            outcomes = cells[source, destination] or {"not tried"}
            expected = REACHED if (source, destination) in allowed else DENIED
            if outcomes != {expected}:
                found = ", ".join(sorted(outcomes))
                wrong.append(f"{source} to {destination}: {found}; expected: {expected}")
    return wrong


def _try_from_pod(lab: Lab, pod: ProbePod, listeners: Sequence[Listener]) -> list[Attempt]:
    sources = {each: _sources(pod, each) for each in listeners}
    chosen = [each for each, found in sources.items() if found]
    argument = json.dumps([each.target() for each in chosen])
    in_pod = ("exec", "-i", "-n", pod.namespace, pod.name, "--")
    command = (*in_pod, "python", "-", "connect", argument)
    outcomes = json.loads(lab.kubectl(*command, stdin=PROBE, timeout_s=PROBE_WITHIN_S))
    return [
        Attempt(source, each, pod.name, outcome)
        for each, outcome in zip(chosen, outcomes, strict=True)
        for source in sources[each]
    ]


def _sources(pod: ProbePod, listener: Listener) -> Sequence[str]:
    """Names of the sources that a pod is for an address; none if it does not connect to it."""
    if not pod.node:
        # Policies do not restrict what a pod sends to itself, also by way of its Service.
        may_be_itself = pod.source == listener.destination == "gateway" and not listener.pod
        return () if may_be_itself or listener.pod == pod.name else (pod.source,)
    if listener.node:
        return ("own-node",) if listener.node == pod.node else ("other-node",)
    # Pods behind the gateway's Service may be on either node.
    return () if listener.destination == "gateway" else ("own-node", "other-node")


def _try_from_host(listeners: Sequence[Listener]) -> list[Attempt]:
    """Connect from this machine, which is no node. What it sends to Services has a node's address."""
    chosen = [each for each in listeners if each.node or each.destination != "gateway"]
    argument = json.dumps([each.target() for each in chosen])
    done = subprocess.run(
        [sys.executable, "-", "connect", argument],
        input=PROBE, capture_output=True, text=True, check=True, timeout=PROBE_WITHIN_S,
    )  # fmt: skip
    outcomes = json.loads(done.stdout)
    return [
        Attempt("host", each, "this machine", outcome)
        for each, outcome in zip(chosen, outcomes, strict=True)
    ]


def _listens(pod: Object, destination: str) -> bool:
    """Whether a pod listens at the destination's port. Engines of the services have only that of the API."""
    is_probe = any(each["name"] == "probe" for each in pod["spec"]["containers"])
    if DESTINATIONS[destination].place == "tenant":
        labels: Mapping[str, str] = pod["metadata"]["labels"]
        return labels.get(LABEL) == "host"
    return is_probe or not destination.startswith("engine-")


def _pods(lab: Lab, namespace: str, labels: Mapping[str, str]) -> list[Object]:
    """List the pods with these labels that run and are not being deleted."""
    selector = ",".join(f"{name}={value}" for name, value in labels.items())
    listed = json.loads(
        lab.kubectl("get", "pods", "-n", namespace, f"--selector={selector}", "-o", "json")
    )
    return [
        each
        for each in listed["items"]
        if each["status"]["phase"] == "Running" and "deletionTimestamp" not in each["metadata"]
    ]


def _service(lab: Lab, namespace: str, name: str) -> Object:
    found: Object = json.loads(lab.kubectl("get", "service", "-n", namespace, name, "-o", "json"))
    spec: Object = found["spec"]
    return spec
