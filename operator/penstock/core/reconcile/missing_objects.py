"""Says which field names an object that a pod waits for."""

import re

from penstock.core.observed.mount_failures import FAILURES
from penstock.core.spec.service import (
    ADAPTER_VOLUMES,
    CHAT_TEMPLATE_VOLUME,
    DRAFT_MODEL_VOLUME,
    MODEL_CACHE_VOLUME,
    MODEL_SECRET_VOLUME,
    MODEL_VOLUME,
)

# The scheduler's message about a pod whose PersistentVolumeClaim does not exist.
_MISSING_CLAIM = re.compile(r'persistentvolumeclaim "[^"]*" not found')
# The scheduler's message about a claim without a volume.
_UNBOUND_CLAIM = "unbound immediate PersistentVolumeClaims"
# End of such messages: the scheduler appends the cause once more.
_REPEATED_CAUSE = ". not found"
# The kubelet's message about a volume that it cannot mount.
_VOLUME = re.compile(r'for volume "([^"]*)"')
_FIELDS = {
    MODEL_VOLUME: "spec.model.uri",
    MODEL_CACHE_VOLUME: "spec.model.cache",
    MODEL_SECRET_VOLUME: "spec.model.secretRef",
    DRAFT_MODEL_VOLUME: "spec.engine.speculative.model.uri",
    CHAT_TEMPLATE_VOLUME: "spec.engine.parsers.chatTemplate",
    **dict.fromkeys(ADAPTER_VOLUMES, "spec.engine.lora.sources"),
}


def with_advice(trouble: tuple[str, str]) -> tuple[str, str]:
    """(reason, message) of a pod, with the field that names what is missing."""
    reason, message = trouble
    if _MISSING_CLAIM.search(message):
        return reason, (
            f"{message.removesuffix(_REPEATED_CAUSE)}; create the claim, or name another one in "
            "spec.model.uri, spec.model.cache, spec.engine.speculative.model.uri or spec.engine.lora.sources"
        )
    if _UNBOUND_CLAIM in message:
        return reason, (
            f"{message.removesuffix(_REPEATED_CAUSE)}; kubectl describe pvc says what the claim waits for"
        )
    volume = _VOLUME.search(message)
    if reason in FAILURES and volume is not None:
        field = _FIELDS.get(volume[1], "spec.template")
        return reason, f"{message}; create what is missing, or change {field}"
    return trouble
