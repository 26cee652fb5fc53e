"""Resolves trees of install objects to plain objects."""

import fnmatch
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import yaml

from penstock.chart.tree import (
    ABSENT,
    AUTHORITY,
    BYTE_UNITS,
    ITEM,
    PORT,
    Absent,
    BytesOf,
    Compared,
    FileName,
    FileText,
    FileYaml,
    ForEach,
    ForEachFile,
    If,
    Json,
    Merge,
    OtherNamespace,
    PortOf,
    ReleaseNamespace,
    Required,
    Text,
    Tree,
    Value,
    VariableName,
    VariableValue,
)
from penstock.core.runtimes.pod_models import as_argument

# The patterns that the template of `penstock.chart.rendering.helm` uses too.
_AUTHORITY, _PORT = re.compile(AUTHORITY), re.compile(PORT)


class RefusedValue(Exception):
    """A value that must be set is empty, or a value is not allowed beside others; the text says which."""


@dataclass(frozen=True, slots=True)
class Release:
    """Inputs of an installation.

    values: complete, as nested maps. files: content of the chart's files, by path.
    """

    values: Mapping[str, Any]
    namespace: str
    files: Mapping[str, str]


def resolve_all(trees: list[Tree], release: Release) -> list[dict[str, Any]]:
    """Return the objects of the trees, without those that the values switch off. Raises RefusedValue."""
    return [*_Resolver(release).items(trees)]


class _Resolver:
    """Resolves trees. item: of the ForEach around it. file: path of the ForEachFile around it."""

    def __init__(self, release: Release, item: Any = None, file: str = "") -> None:
        self._release = release
        self._item = item
        self._file = file

    def items(self, nodes: list[Tree]) -> Iterator[Any]:
        for node in nodes:
            if isinstance(node, ForEach):
                if node.required and not self._value(node.path):
                    raise RefusedValue(node.required)
                for each in self._value(node.path):
                    yield _Resolver(self._release, each, self._file).resolve(node.item)
            elif isinstance(node, ForEachFile):
                for path in fnmatch.filter(sorted(self._release.files), node.pattern):
                    yield _Resolver(self._release, self._item, path).resolve(node.item)
            elif isinstance(node, If):
                yield from self.items([node.then if self._value(node.path) else node.otherwise])
            elif not isinstance(node, Absent):
                yield self.resolve(node)

    def resolve(self, node: Tree) -> Any:
        match node:
            case dict():
                entries = [(self.resolve(key), self.resolve(child)) for key, child in node.items()]
                return {key: child for key, child in entries if child is not ABSENT}
            case list():
                return [*self.items(node)]
            case Merge(fixed, path):
                return self.resolve(dict(fixed)) | self._value(path)
            case If(path, then, otherwise):
                return self.resolve(then if self._value(path) else otherwise)
            case Text(parts):
                texts = [self.resolve(part) for part in parts]
                return "".join(str(each) for each in texts if each is not ABSENT)
            # The values are checked already.
            case Value(path) | Compared(path):
                return self._value(path)
            case Json(path, required):
                found = _require(self._value(path), required) if required else self._value(path)
                return json.dumps(found, separators=(",", ":"), sort_keys=True)
            case PortOf(path) | BytesOf(path) | VariableName(path) | VariableValue(path):
                return _part(node, self._value(path))
            case Required(path, message):
                return _require(self._value(path), message)
            case OtherNamespace(path, message):
                return _require_other(self._release.namespace, self._value(path), message)
            case ReleaseNamespace():
                return self._release.namespace
            case FileName(suffix):
                return PurePosixPath(self._file).name.removesuffix(suffix)
            case FileText():
                return self._release.files[self._file]
            case FileYaml(replaced, path):
                text = self._release.files[self._file]
                return yaml.safe_load(text.replace(replaced, self._value(path)))
            case _:
                return node

    def _value(self, path: str) -> Any:
        if path == ITEM:
            return self._item
        found: Any = self._release.values
        for name in path.split("."):
            found = found[name]
        return found


def _require(value: Any, message: str) -> Any:
    """Return a value that must not be empty. Raises RefusedValue with the message."""
    if not value:
        raise RefusedValue(message)
    return value


def _require_other(taken: str, name: str, message: str) -> str:
    """Return a name that must not be the one that is taken. Raises RefusedValue with the message."""
    if name == taken:
        raise RefusedValue(message)
    return name


def _part(node: PortOf | BytesOf | VariableName | VariableValue, text: str) -> int | str:
    """The value of a node that reads a part of a text. text: the value at its path."""
    match node:
        case PortOf():
            return port_of(text)
        case BytesOf():
            return bytes_of(text)
        case VariableName():
            return text.partition("=")[0]
        case VariableValue():
            return as_argument(text.partition("=")[2])


def bytes_of(size: str) -> int:
    """The bytes of a size, as `BytesOf` says."""
    return int(size[:-2]) * BYTE_UNITS[size[-2:]]


def port_of(url: str) -> int:
    """The port of a URL or HOST:PORT, as `PortOf` says."""
    authority = _AUTHORITY.match(url)
    port = authority and _PORT.search(authority[0])
    if port:
        return int(port[0].removeprefix(":"))
    return 443 if url.startswith("https:") else 80
