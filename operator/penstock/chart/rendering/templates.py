"""All install objects as trees, by the template file that they are in, in the order to apply."""

from functools import cache

from penstock.api.generation.crdgen import crds
from penstock.chart.access import rights
from penstock.chart.access.user_roles import user_roles
from penstock.chart.api_server.admission_policy import admission_policy
from penstock.chart.api_server.api_priority import api_priority
from penstock.chart.batch.objects import batch
from penstock.chart.gateway.objects import gateway
from penstock.chart.monitoring.objects import monitoring
from penstock.chart.network.policies import network_policies
from penstock.chart.node_cache.objects import node_cache
from penstock.chart.operator.objects import operator
from penstock.chart.tree import If, Tree
from penstock.core.spec.service import GROUP, Object

# Penstock's own kinds as rights and paths name them, and the names of their CRDs, in the order to apply.
_PLURALS = {crd["spec"]["names"]["plural"]: crd["spec"]["scope"] for crd in crds()}
PLURALS = [plural for plural, scope in _PLURALS.items() if scope == "Namespaced"]
CLUSTER_PLURALS = [plural for plural, scope in _PLURALS.items() if scope == "Cluster"]
CRD_NAMES = [f"{plural}.{GROUP}" for plural in _PLURALS]


@cache
def templates() -> dict[str, list[Tree]]:
    """Name of a template, without its suffix -> trees of its objects."""
    return {
        "crds": [If("crds.enabled", _keep_at_uninstall(crd)) for crd in crds()],
        "rights": rights.rights(),
        "user-roles": user_roles(PLURALS, CLUSTER_PLURALS),
        "api-priority": api_priority(),
        "admission-policy": admission_policy(),
        "network-policies": network_policies(),
        "operator": operator(),
        "gateway": gateway(),
        "node-cache": node_cache(),
        "batch": batch(),
        "monitoring": monitoring(),
    }


def _keep_at_uninstall(crd: Object) -> Object:
    """The CRD with the annotation that Helm keeps it: with a CRD all its objects are deleted."""
    annotations = {"helm.sh/resource-policy": "keep"}
    return crd | {"metadata": crd["metadata"] | {"annotations": annotations}}
