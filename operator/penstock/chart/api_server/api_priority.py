"""Priority of the operator's requests at the API server (API Priority and Fairness)."""

from penstock.chart.names import OPERATOR, labels
from penstock.chart.tree import If, ReleaseNamespace, Text, Tree, Value
from penstock.core.spec.service import Object

_API_VERSION = "flowcontrol.apiserver.k8s.io/v1"
# Lower than the 9000 of the FlowSchema for all service accounts: the lowest that matches wins.
_PRECEDENCE = 5000


def api_priority() -> list[Tree]:
    """A priority level for the operator, and the FlowSchema that puts its requests there.

    The names have the namespace, because an installation for one namespace may be one of several.
    """
    name = Text.of(f"{OPERATOR}-", ReleaseNamespace())
    level = {
        "apiVersion": _API_VERSION,
        "kind": "PriorityLevelConfiguration",
        "metadata": {"name": name, "labels": labels(OPERATOR)},
        "spec": {
            "type": "Limited",
            "limited": {
                "nominalConcurrencyShares": Value("apiPriority.concurrencyShares"),
                "lendablePercent": 50,
                "limitResponse": {
                    "type": "Queue",
                    "queuing": {"queues": 16, "handSize": 4, "queueLengthLimit": 50},
                },
            },
        },
    }
    account = {"name": OPERATOR, "namespace": ReleaseNamespace()}
    schema = {
        "apiVersion": _API_VERSION,
        "kind": "FlowSchema",
        "metadata": {"name": name, "labels": labels(OPERATOR)},
        "spec": {
            "priorityLevelConfiguration": {"name": name},
            "matchingPrecedence": _PRECEDENCE,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [
                {
                    "subjects": [{"kind": "ServiceAccount", "serviceAccount": account}],
                    "resourceRules": [_all_resources()],
                    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                }
            ],
        },
    }
    return [If("apiPriority.enabled", level), If("apiPriority.enabled", schema)]


def _all_resources() -> Object:
    return {
        "verbs": ["*"],
        "apiGroups": ["*"],
        "resources": ["*"],
        "namespaces": ["*"],
        "clusterScope": True,
    }
