"""Reads a Containerfile as the stages and instructions that the tests need."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from string import Template


@dataclass(frozen=True, slots=True)
class Step:
    """An instruction of a stage, such as RUN or COPY, with build arguments filled in."""

    instruction: str
    text: str

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text)


@dataclass(frozen=True, slots=True)
class Stage:
    base: str
    steps: list[Step]

    def texts(self, instruction: str) -> list[str]:
        return [step.text for step in self.steps if step.instruction == instruction]

    def pairs(self, instruction: str) -> dict[str, str]:
        """Names and values of ENV or LABEL."""
        steps = [step for step in self.steps if step.instruction == instruction]
        return dict(word.split("=", 1) for step in steps for word in step.words)

    def copied(self) -> list[tuple[list[str], str]]:
        """Sources in the build context, and the destination, of each COPY."""
        copies = [step.words for step in self.steps if step.instruction == "COPY"]
        return [(sources, target) for *sources, target in copies if not sources[0].startswith("--")]


def read_stages(path: Path) -> list[Stage]:
    """The stages of a Containerfile, with the defaults of its build arguments."""
    text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE)
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if not line.strip():
            continue
        instruction, text = line.split(" ", 1)
        text = Template(text).safe_substitute(arguments)
        if instruction == "ARG":
            name, _, default = text.partition("=")
            arguments[name] = default
        elif instruction == "FROM":
            stages.append(Stage(text.split()[0], []))
        else:
            stages[-1].steps.append(Step(instruction, text))
    return stages
