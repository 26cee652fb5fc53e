"""The texts of `kubectl explain`: every field of a spec says by example what it may be."""

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.api.generation.crdgen import crds

Schema = dict[str, Any]
EXAMPLES = ("such as ", "Default")


def leaves(node: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    """Yield the fields without fields of their own. Lists and maps of scalars count as one each."""
    items = node.get("items", {})
    fields = node.get("properties") or items.get("properties") or {}
    for name, child in fields.items():
        yield from leaves(child, f"{path}.{name}")
    if not fields:
        yield path, node


def has_example(node: Schema) -> bool:
    texts = [each.get("description", "") for each in (node, node.get("items", {}))]
    is_listed = any("enum" in each for each in (node, node.get("items", {})))
    return (
        is_listed or "default" in node or any(each in text for each in EXAMPLES for text in texts)
    )


@pytest.mark.parametrize("crd", crds(), ids=lambda crd: crd["spec"]["names"]["singular"])
def test_every_field_of_a_spec_has_an_example(crd: Schema) -> None:
    (version,) = crd["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    found = dict(leaves(spec, "spec"))
    assert len(found) >= 10
    assert [path for path, node in found.items() if not has_example(node)] == []


def test_a_field_without_an_example_is_found() -> None:
    bare = {"type": "string", "description": "Name of the header."}
    schema = {
        "properties": {"a": {"type": "array", "items": {"properties": {"b": bare}}}, "c": bare}
    }
    assert [path for path, node in leaves(schema, "spec") if not has_example(node)] == [
        "spec.a.b",
        "spec.c",
    ]
