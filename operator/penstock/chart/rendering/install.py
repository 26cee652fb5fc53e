"""All objects that install Penstock in a cluster."""

from collections.abc import Mapping
from typing import Any

from penstock.chart.monitoring.files import files
from penstock.chart.names import NAMESPACE, labels
from penstock.chart.rendering.resolve import Release, resolve_all
from penstock.chart.rendering.templates import templates
from penstock.chart.values.values import complete
from penstock.core.spec.service import Object


def install_manifests(values: Mapping[str, Any], namespace: str = NAMESPACE) -> list[Object]:
    """Return the objects in the order to apply: namespace, CRDs, rights, operator and gateway.

    values: those that differ from the chart's defaults. Raises InvalidValues and RefusedValue.
    """
    release = Release(complete(values), namespace, files())
    trees = [tree for group in templates().values() for tree in group]
    return [_namespace(namespace), *resolve_all(trees, release)]


def image_values(reference: str) -> dict[str, Any]:
    """The values of an image. reference: HOST/NAME, HOST/NAME:TAG or HOST/NAME@DIGEST."""
    name, _, digest = reference.partition("@")
    folder, slash, last = name.rpartition("/")
    last, _, tag = last.partition(":")
    return {"image": {"repository": f"{folder}{slash}{last}", "tag": tag, "digest": digest}}


def _namespace(name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": labels("namespace")},
    }
