"""API keys of external models' providers, read from Secrets and read again while they may change."""

import asyncio
import base64
import binascii
import logging

from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.resources import SECRETS
from penstock.core.providers.external_model import ExternalModel, SecretKey
from penstock.errors import Forbidden, KubeError, NotFound
from penstock.gateway.apis.errors import RETRY_AFTER_S, RequestError
from penstock.gateway.snapshots.store import SnapshotStore

logger = logging.getLogger(__name__)

# Interval at which Secrets are read again, so that a rotated or deleted key is noticed.
REFRESH_S = 20.0
# Interval at which new external models are looked for.
CHECK_S = 1.0

# Namespace, and name and key of a Secret.
Reference = tuple[str, SecretKey]


class ExternalKeys:
    """The keys by reference. A problem in place of a key says why there is none."""

    def __init__(self) -> None:
        self._keys: dict[Reference, str] = {}
        self._problems: dict[Reference, str] = {}

    def get(self, model: ExternalModel) -> str:
        """Return the key of an external model; empty if it needs none. Raises RequestError."""
        if model.secret is None:
            return ""
        reference = model.namespace, model.secret
        if (key := self._keys.get(reference)) is not None:
            return key
        problem = self._problems.get(reference, "has not been read yet")
        message = f"the Secret {model.secret.name} with the key of the ExternalModel {model.key} {problem}"
        raise RequestError(503, message, code="external_key_missing", retry_after_s=RETRY_AFTER_S)

    async def follow(self, kube: Kube, snapshots: SnapshotStore) -> None:
        """Read the Secrets of the snapshot's external models again and again, until cancelled."""
        read_s: dict[Reference, float] = {}
        loop = asyncio.get_running_loop()
        while True:
            externals = snapshots.current.externals
            wanted = {(each.namespace, each.secret) for each in externals if each.secret}
            for reference in wanted:
                now_s = loop.time()
                if now_s >= read_s.get(reference, 0.0) + REFRESH_S or reference not in read_s:
                    read_s[reference] = now_s
                    await self.read(kube, *reference)
            for reference in read_s.keys() - wanted:
                del read_s[reference]
                self._keys.pop(reference, None)
                self._problems.pop(reference, None)
            await asyncio.sleep(CHECK_S)

    async def read(self, kube: Kube, namespace: str, secret: SecretKey) -> None:
        """Read one Secret. While the API server does not answer, the key stays."""
        try:
            body = await kube.get(SECRETS, namespace, secret.name)
            key = _key_of(body.get("data") or {}, secret.key)
        except NotFound:
            self._note_problem((namespace, secret), "does not exist: create it")
        except Forbidden:
            problem = "may not be read: let the gateway's ServiceAccount get it"
            self._note_problem((namespace, secret), problem)
        except ValueError as error:
            self._note_problem((namespace, secret), str(error))
        except KubeError as error:
            logger.warning("the Secret %s/%s cannot be read: %s", namespace, secret.name, error)
        else:
            self._keys[namespace, secret] = key
            self._problems.pop((namespace, secret), None)

    def _note_problem(self, reference: Reference, problem: str) -> None:
        self._keys.pop(reference, None)
        if self._problems.get(reference) != problem:
            namespace, secret = reference
            logger.warning("the Secret %s/%s %s", namespace, secret.name, problem)
        self._problems[reference] = problem


def _key_of(data: dict[str, str], name: str) -> str:
    """The key in a Secret's data. Raises ValueError with what is wrong, without the key."""
    if name not in data:
        raise ValueError(f"has no key {name}: add it, or change spec.keySecretRef.key")
    try:
        key = base64.b64decode(data[name], validate=True).decode("ascii").strip()
    except (binascii.Error, UnicodeDecodeError):
        raise ValueError(f"has no text of ASCII in its key {name}") from None
    if not key or not key.isprintable():
        raise ValueError(f"has no usable text in its key {name}")
    return key
