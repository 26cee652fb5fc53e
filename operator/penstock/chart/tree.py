"""Nodes of the install objects that depend on the chart's values.

An object is a tree of dicts, lists and scalars with these nodes in it. `rendering.resolve` makes a plain
object of it, `rendering.helm` a Helm template. A path is that of a value, such as "gateway.port". ITEM is
the current item of a ForEach.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Tree = Any

ITEM = "."

# Units of sizes, in bytes.
BYTE_UNITS = {"Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
# Patterns of a URL up to its path, and of a port at its end, for both renderers.
AUTHORITY, PORT = "^([a-z]+://)?[^/?#]*", ":[0-9]+$"


@dataclass(frozen=True, slots=True)
class Value:
    """The value at a path."""

    path: str


@dataclass(frozen=True, slots=True)
class Json:
    """The value at a path as JSON, as a part of a Text; also an integer, which is a float in Helm.

    required: the error if the value is empty; empty: it may be. A JSON schema can refuse it too, but not say
    which other value requires it.
    """

    path: str
    required: str = ""


@dataclass(frozen=True, slots=True)
class Required:
    """The value at a path, which must be set. message: the error without it."""

    path: str
    message: str


@dataclass(frozen=True, slots=True)
class Compared:
    """The integer at a path, checked against the one at `other`, which a JSON schema cannot do.

    refused: "gt" if it must not be greater, "eq" if it must not be equal. message: the error if it is.
    """

    path: str
    refused: Literal["gt", "eq"]
    other: str
    message: str


@dataclass(frozen=True, slots=True)
class OtherNamespace:
    """The namespace at a path, which must not be the release's. message: the error if it is."""

    path: str
    message: str


@dataclass(frozen=True, slots=True)
class PortOf:
    """The port of the URL or HOST:PORT at a path; without one 443 for https, and else 80."""

    path: str


@dataclass(frozen=True, slots=True)
class BytesOf:
    """The bytes of the quantity at a path, a whole number of one of BYTE_UNITS. It is a part of a Text."""

    path: str


@dataclass(frozen=True, slots=True)
class VariableName:
    """The name in the text NAME=VALUE at a path."""

    path: str


@dataclass(frozen=True, slots=True)
class VariableValue:
    """The value in the text NAME=VALUE at a path, for a field in which Kubernetes expands $(NAME)."""

    path: str


@dataclass(frozen=True, slots=True)
class ReleaseNamespace:
    """The namespace that Penstock is installed in."""


@dataclass(frozen=True, slots=True)
class Absent:
    """No entry of a dict or list."""


ABSENT = Absent()


@dataclass(frozen=True, slots=True)
class If:
    """A choice between two trees. path: of a value; false, zero and empty ones select `otherwise`."""

    path: str
    then: Tree
    otherwise: Tree = ABSENT


@dataclass(frozen=True, slots=True)
class Text:
    """A string of several parts: strings, Value, Json, BytesOf, Required, ReleaseNamespace, or If of them."""

    parts: tuple[Tree, ...]

    @classmethod
    def of(cls, *parts: Tree) -> "Text":
        return cls(parts)


@dataclass(frozen=True, slots=True)
class ForEach:
    """Part of a list: `item` for each item of the list at a path.

    required: the error if the list is empty; empty: it may be.
    """

    path: str
    item: Tree
    required: str = ""


@dataclass(frozen=True, slots=True)
class Merge:
    """A dict with the entries of the map at a path added. The map has other keys than the dict."""

    fixed: Mapping[str, Tree]
    path: str


@dataclass(frozen=True, slots=True)
class ForEachFile:
    """Part of a list of objects: `item` for each of the chart's files whose path matches `pattern`."""

    pattern: str
    item: Tree


@dataclass(frozen=True, slots=True)
class FileName:
    """Name of the current file of a ForEachFile, without `suffix`."""

    suffix: str = ""


@dataclass(frozen=True, slots=True)
class FileText:
    """Content of the current file of a ForEachFile."""


@dataclass(frozen=True, slots=True)
class FileYaml:
    """Content of the current file of a ForEachFile, parsed as YAML, with a text replaced by a value.

    replaced: the text. path: of the value.
    """

    replaced: str
    path: str


def optional(path: str) -> If:
    """The value at a path; absent if it is empty."""
    return If(path, Value(path))
