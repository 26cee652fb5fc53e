"""Finds out whether pods of a local cluster can fetch models from the Hugging Face hub."""

import httpx

from penstock.local.chat_model import HUB_ENDPOINT, REPOSITORY
from penstock.local.record import NodeKind

TIMEOUT = httpx.Timeout(10, connect=4)  # seconds; a hub that can be reached answers within one


def pods_reach_hub(node: NodeKind) -> bool:
    """Whether pods on nodes of this kind reach the hub."""
    # Nodes with a kubelet have no route to other networks.
    return node == "agent" and answers_as_hub(HUB_ENDPOINT)


def answers_as_hub(url: str) -> bool:
    """Whether a server reports the commit of the chat model, as the hub does.

    Variables of this process that name proxies are ignored, as pods do not get them.
    """
    try:
        with httpx.Client(timeout=TIMEOUT, trust_env=False) as client:
            answer = client.get(f"{url}/api/models/{REPOSITORY}")
            body = answer.json() if answer.is_success else None
    except (httpx.HTTPError, ValueError):
        return False
    return isinstance(body, dict) and "sha" in body
