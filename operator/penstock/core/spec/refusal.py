"""Why the spec of a service is refused."""

from dataclasses import dataclass

INVALID_SPEC = "InvalidSpec"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a spec is refused. reason: InvalidSpec if it cannot be read, else why it is not allowed."""

    reason: str
    message: str

    @property
    def problem(self) -> str:
        return f"the spec is {'invalid' if self.reason == INVALID_SPEC else 'not allowed'}"
