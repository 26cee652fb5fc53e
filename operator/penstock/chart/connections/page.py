"""Reference page of the connections that NetworkPolicies allow."""

from collections.abc import Collection, Iterable

import yaml

from penstock.chart.connections.matrix import DESTINATIONS, EGRESS_RESTRICTED, SOURCES, Connection
from penstock.chart.connections.variants import VARIANTS, engine_egress_policy
from penstock.chart.names import BATCH_MANAGEMENT_PORT, BATCH_PORT
from penstock.chart.network.values import NetworkPolicy

_INTRODUCTION = """\
# Connections

Generated from `operator/penstock/chart/connections` by `penstock docs`; do not edit.
`make real-node` makes each of these connections on a cluster whose network plugin enforces NetworkPolicies.

An installation with default values allows these connections, and denies the others:
"""

_NOTES = """\
- Policies decide by address and port: who reaches port 8000 of an engine can send requests to it, load and
  unload adapters, and read its metrics.
- Within a namespace, labels prove nothing. Who may create pods or services in the namespace of a service can
  connect to its engines, as an evaluation Job does. The same labels in another namespace have no effect.
- Policies do not restrict what comes from the node that a pod runs on, as its probes do, and so no pod of
  that node with `hostNetwork: true`. Network plugins differ in what they do with other nodes; this table is
  for those that treat them as hosts outside of the cluster.
- "Another host" is any address, also on the internet.
- A Service of type LoadBalancer or NodePort gives connections the address of a node, so that
  `gatewayFrom` sees the node in place of the client. With `gateway.service.externalTrafficPolicy: Local` it
  sees the client.
- With `gateway.hostNetwork` a gateway has its node's address. Most network plugins then restrict neither what
  it connects to nor who connects to its ports, one of which has metrics of all namespaces. Restrict them by a
  firewall of the nodes.
- Ports 5557 and 5558 of engines have their block events, with `spec.engine.kvCache.events`. They contain
  prompts: no peer in `enginesFrom` may connect to them. Other subscribers, and gateways with
  `gateway.hostNetwork`, need a policy of your own.

## Values that change this

A value that is named without its section, such as `metricsFrom`, is below `networkPolicy`.
"""

_STORE_PORTS = ", ".join(map(str, NetworkPolicy().store_ports))
_SOURCE_PORTS = ", ".join(map(str, NetworkPolicy().source_ports))
_NODE_CACHE = f"""
## The cache of nodes

With `nodeCache.enabled`, the pods of the cache connect to DNS servers, and to any address at the ports in
`networkPolicy.sourcePorts` (default {_SOURCE_PORTS}): to sources of models, or to the mirror or proxy in
`operator.sourceVariables`. Nothing may connect to these pods. Pods of their node ask them over a UNIX
socket in the folder that both mount, which policies do not restrict.
"""
_BATCH = f"""\
## The batch server

With `batch.enabled`, gateways connect to port {BATCH_PORT} of the batch server, and it to the port of
gateways for clients, whatever `gatewayFrom` names. It connects to DNS servers too, and with
`batch.storage.s3` to any address at the ports in `networkPolicy.storePorts` (default {_STORE_PORTS}). Its
port {BATCH_MANAGEMENT_PORT} has metrics, and is as restricted as that of the gateway. With
`gateway.hostNetwork` any pod may connect to port {BATCH_PORT}, where only the shared token is believed.
"""
_ENGINES = """
## A policy for what engines connect to

Penstock's engine reads models from volumes. With `spec.tracing` it connects to the collector of traces and to
a DNS server, otherwise to nothing. The containers that fetch its model, before it starts, connect to the
source of the model and to a DNS server, and so do the pods that check the model (role `preflight`) and fetch
adapters (`adapter-fetch`). A custom runtime may download more. So Penstock leaves the egress of engines open.
This policy closes it; add a rule for each host that they need:
"""


def page() -> str:
    """The Markdown reference page."""
    columns = [each.text for each in DESTINATIONS.values()]
    rows = [
        [source.text, *("yes" if name in source.reached else "" for name in DESTINATIONS)]
        for source in SOURCES.values()
    ]
    changes = [
        [variant.text, _connections(variant.opened), _connections(variant.closed)]
        for variant in VARIANTS.values()
    ]
    policy = yaml.safe_dump(engine_egress_policy("default"), sort_keys=False)
    return "\n".join(
        [
            _INTRODUCTION,
            *_table(["from \\ to", *columns], rows),
            "",
            _NOTES,
            *_table(["value", "allows too", "denies too"], changes),
            _NODE_CACHE,
            _BATCH,
            _ENGINES.lstrip(),
            f"```yaml\n{policy}```\n",
        ]
    )


def _table(columns: list[str], rows: Iterable[list[str]]) -> list[str]:
    lines = [columns, ["---"] * len(columns), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def _connections(found: Collection[Connection]) -> str:
    """Names of connections, those of a destination together, in the order of the first table."""
    parts = []
    for name, destination in DESTINATIONS.items():
        sources = [key for key in SOURCES if (key, name) in found]
        others = [
            key
            for key in SOURCES
            if key not in EGRESS_RESTRICTED and name not in SOURCES[key].reached
        ]
        texts = ["all others"] if sources == others else [SOURCES[key].text for key in sources]
        if sources:
            parts.append(f"**{destination.text}** from: {'; '.join(texts)}")
    return "<br>".join(parts)
