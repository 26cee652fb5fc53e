"""Ids of stored responses, which say on which engine a response is.

A response is stored by the engine that has made it, and by no other. So its id ends with a key of the
engine's pod and of the tenant that has created it. Every gateway computes the keys of the pods that it knows
for the tenant that asks: it finds the engine without a database, also after a restart, and another tenant
finds none. An engine finds a response by its whole id, so nobody gains by another key in it. The rest of an
id is random, so that nobody can guess the ids of others.
"""

import secrets
from functools import lru_cache
from hashlib import blake2b

from penstock.gateway.apis.model_field import add_field
from penstock_engine.contract.wire import RESPONSE_ID, RESPONSE_ID_BYTES, RESPONSE_KEY_BYTES

# Bound on the pods whose keys are remembered; computing one takes 1 us.
MAX_PODS = 10_000


@lru_cache(MAX_PODS)
def pod_key(pod: str, tenant: str) -> str:
    """The key of an engine's pod in ids of a tenant's responses.

    pod: "namespace/name". tenant: its name; empty while the gateway is open.
    """
    text = f"{pod}\n{tenant}" if tenant else pod
    return blake2b(text.encode(), digest_size=RESPONSE_KEY_BYTES).hexdigest()


def key_of(response_id: str) -> str | None:
    """The key of the pod in an id; None if it has none."""
    found = RESPONSE_ID.fullmatch(response_id)
    return None if found is None else found["key"]


def name_response(body: bytes, pod: str, tenant: str) -> bytes:
    """Return a request's body with a new id for its response, for the engine of a pod. tenant: see `pod_key`.

    vLLM takes the field `request_id` as the id, and Penstock's engine takes its key. A field of the client's
    with this name is overridden.
    """
    return add_field(
        body, "request_id", f"resp_{secrets.token_hex(RESPONSE_ID_BYTES)}{pod_key(pod, tenant)}"
    )
