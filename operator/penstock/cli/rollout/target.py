"""The object that a command of `penstock rollout` is about: a service, or `lora/NAME`."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.clients.kubernetes.resources import INFERENCE_SERVICES, LORA_ADAPTERS, Resource
from penstock.core.manifests.stored_record import adapter_prefix

# As kubectl names them.
KINDS: Mapping[str, Resource] = {
    **dict.fromkeys(("psvc", "inferenceservice", "inferenceservices"), INFERENCE_SERVICES),
    **dict.fromkeys(("lora", "loraadapter", "loraadapters"), LORA_ADAPTERS),
}


class Refused(Exception):
    """The command does not apply to the current state; the text says why."""


@dataclass(frozen=True, slots=True)
class RolloutTarget:
    """A service or an adapter. text: as in commands."""

    resource: Resource
    name: str

    @property
    def is_adapter(self) -> bool:
        return self.resource is LORA_ADAPTERS

    @property
    def text(self) -> str:
        return f"lora/{self.name}" if self.is_adapter else self.name

    @property
    def record_prefix(self) -> str:
        """Prefix of the names of its stored records."""
        return adapter_prefix(self.name) if self.is_adapter else self.name


def parse_target(text: str) -> RolloutTarget:
    """Read a target: NAME of a service, or KIND/NAME. Raises Refused."""
    kind, slash, name = text.rpartition("/")
    if not slash:
        return RolloutTarget(INFERENCE_SERVICES, text)
    if kind not in KINDS or not name:
        raise Refused(
            f"{text} is neither the name of an InferenceService, nor psvc/NAME, nor lora/NAME"
        )
    return RolloutTarget(KINDS[kind], name)
