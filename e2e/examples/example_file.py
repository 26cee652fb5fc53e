"""Reads a file of examples/: its objects, and the commands that its comments tell users to run before."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2] / "examples"
COMMAND = re.compile(r"kubectl create secret (?:.*\\\n)*.*")
# A setting of a command, whose value is the user's: NAME=VALUE after `--from-literal=`, or a flag itself.
SETTING = re.compile(r"(?<=--)((?:from-literal=)?)([\w-]+)=([^\s=]+)")
# Lines that a comment offers to users who need a Secret.
OFFERED_SECRET = re.compile(r"^( *)# (secretRef:)\n\1# (  name: .*)$", re.MULTILINE)


@dataclass(frozen=True)
class ExampleFile:
    """A file of examples/ as a user fills it in. text: YAML with the user's addresses."""

    text: str

    @classmethod
    def read(
        cls, name: str, addresses: Mapping[str, str], *, with_secret: bool = False
    ) -> "ExampleFile":
        """Read a file.

        addresses: what takes the place of addresses and digests that belong to nobody. with_secret: take
        in the `secretRef` that a comment offers.
        """
        text = (ROOT / name).read_text()
        for placeholder, address in addresses.items():
            text = text.replace(placeholder, address)
        if with_secret:
            text = OFFERED_SECRET.sub(r"\1\2\n\1\3", text)
        return cls(text)

    def objects(self, kind: str) -> list[dict[str, Any]]:
        """The objects of one kind."""
        return [each for each in yaml.safe_load_all(self.text) if each["kind"] == kind]

    def commands(self, values: Mapping[str, str]) -> list[str]:
        """The commands of comments that make the Secrets of the objects, with the values of a user."""
        comments = "\n".join(
            line.removeprefix("#").removeprefix(" ")
            for line in self.text.splitlines()
            if line.startswith("#")
        )
        secrets = set(self._secrets())
        return [
            SETTING.sub(lambda found: _filled(found, values), command)
            for command in COMMAND.findall(comments)
            if command.split()[4] in secrets
        ]

    def chart_values(self) -> dict[str, Any]:
        """The values of the chart in the indented lines of a comment. There have to be some."""
        lines = [
            line.removeprefix("#") for line in self.text.splitlines() if line.startswith("#   ")
        ]
        values: dict[str, Any] = yaml.safe_load("\n".join(lines))
        return values

    def _secrets(self) -> Iterator[str]:
        """Names of the Secrets that models and adapters need."""
        for document in yaml.safe_load_all(self.text):
            model = document.get("spec", {}).get("model", {})
            if "secretRef" in model:
                yield model["secretRef"]["name"]


def _filled(setting: "re.Match[str]", values: Mapping[str, str]) -> str:
    prefix, name, value = setting.groups()
    return f"{prefix}{name}={values.get(name, value)}"
