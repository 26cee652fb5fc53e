"""The NetworkPolicy of the engines of a namespace."""

from collections.abc import Sequence

from penstock.core.spec.service import (
    ENGINE_PORT,
    EVALUATION,
    EVENTS_PORT,
    EVENTS_REPLAY_PORT,
    MANAGED_BY,
    MANAGED_LABEL,
    ROLE_LABEL,
    SERVE,
    Object,
)

ENGINES_POLICY_NAME = "penstock-engines"


def engines_policy(
    namespace: str, peers: Sequence[Object], subscribers: Sequence[Object]
) -> Object:
    """The policy by which only these peers, and evaluation Jobs of canaries, may connect to engines.

    subscribers: the only ones that may connect to the ports of block events, which have tokens of prompts.
    An engine authenticates nobody. Probes come from the node, which policies do not restrict. Policies add
    up: users may allow more with one of their own.
    """
    evaluations = {"podSelector": {"matchLabels": role_labels(EVALUATION)}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": ENGINES_POLICY_NAME,
            "namespace": namespace,
            "labels": {MANAGED_LABEL: MANAGED_BY},
        },
        "spec": {
            "podSelector": {"matchLabels": role_labels(SERVE)},
            "policyTypes": ["Ingress"],
            "ingress": [
                {
                    "ports": [{"port": ENGINE_PORT, "protocol": "TCP"}],
                    "from": [*peers, evaluations],
                },
                {
                    "ports": [
                        {"port": port, "protocol": "TCP"}
                        for port in (EVENTS_PORT, EVENTS_REPLAY_PORT)
                    ],
                    "from": [*subscribers],
                },
            ],
        },
    }


def role_labels(role: str) -> dict[str, str]:
    """Labels that the pods of a role have, whichever service they belong to."""
    return {MANAGED_LABEL: MANAGED_BY, ROLE_LABEL: role}
