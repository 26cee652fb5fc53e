"""Writes objects as YAML for kubectl, whose parser takes more words for numbers and booleans than PyYAML."""

import re
from collections.abc import Iterable

import yaml

from penstock.core.spec.service import Object

_NUMBER = re.compile(r"[-+]?(0[xXoObB][\da-fA-F_]+|(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?)\Z")
_BOOLEAN = re.compile(r"[yYnN]\Z")


class _Dumper(yaml.SafeDumper):
    """Quotes strings that a parser in Go would not read as strings. Writes equal parts in full."""

    def ignore_aliases(self, data: object) -> bool:
        return True


# PyYAML quotes a string if without quotes it would get another tag than that of strings.
_Dumper.add_implicit_resolver("!number", _NUMBER, list("-+.0123456789"))
_Dumper.add_implicit_resolver("!boolean", _BOOLEAN, list("yYnN"))


def dump_all(objects: Iterable[Object]) -> str:
    """The text of a file with these objects."""
    text: str = yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=100)
    return text
