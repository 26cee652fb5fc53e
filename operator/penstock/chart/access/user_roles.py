"""Rights on Penstock's kinds for users with the roles view, edit and admin of Kubernetes."""

from collections.abc import Sequence

from penstock.chart.names import USER_EDIT_ROLE, USER_VIEW_ROLE, labels
from penstock.chart.tree import If, Tree
from penstock.core.spec.service import GROUP, Object

_READ = ["get", "list", "watch"]
_WRITE = ["create", "delete", "deletecollection", "patch", "update"]


def user_roles(plurals: Sequence[str], cluster_plurals: Sequence[str]) -> list[Tree]:
    """ClusterRoles that the API server adds to view, edit and admin, wherever these are granted.

    Users write no status: that is the operator's. plurals: of the kinds in namespaces. cluster_plurals: of
    the others, which a role of the whole cluster may read, and none of these write: a team must not raise
    its own limits.
    """
    read = [*plurals, *cluster_plurals]
    status = [f"{plural}/status" for plural in read]
    view = [_rule([*read, *status, "inferenceservices/scale"], _READ)]
    edit = [_rule([*plurals], _WRITE), _rule(["inferenceservices/scale"], ["patch", "update"])]
    return [
        If("userRoles.enabled", _role(USER_VIEW_ROLE, ["view", "edit", "admin"], view)),
        If("userRoles.enabled", _role(USER_EDIT_ROLE, ["edit", "admin"], edit)),
    ]


def _rule(resources: list[str], verbs: list[str]) -> Object:
    return {"apiGroups": [GROUP], "resources": resources, "verbs": verbs}


def _role(name: str, extended: list[str], rules: list[Object]) -> Tree:
    """A ClusterRole. extended: the roles of Kubernetes that get its rules."""
    aggregation = {f"rbac.authorization.k8s.io/aggregate-to-{role}": "true" for role in extended}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name, "labels": labels(name) | aggregation},
        "rules": rules,
    }
