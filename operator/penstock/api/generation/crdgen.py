"""Generates the CustomResourceDefinitions from the pydantic models.

The API server requires a structural schema: no references, titles or unions. A construct that is not
handled here raises, so that it cannot reach the CRD half converted.
"""

import json
from typing import Any

import yaml
from pydantic import BaseModel

from penstock.api.externalmodel import kind as externalmodel
from penstock.api.externalmodel.kind import ExternalModel
from penstock.api.generation.columns import (
    ADAPTER_COLUMNS,
    COLUMNS,
    EXTERNAL_COLUMNS,
    ROUTE_COLUMNS,
    TENANT_COLUMNS,
    Columns,
)
from penstock.api.inferenceservice.kind import KIND, PLURAL, InferenceService
from penstock.api.loraadapter import kind as loraadapter
from penstock.api.loraadapter.kind import LoraAdapter
from penstock.api.modelroute import kind as modelroute
from penstock.api.modelroute.kind import ModelRoute
from penstock.api.schema.defaults import OPERATOR_DEFAULT
from penstock.api.tenant import kind as tenant
from penstock.api.tenant.kind import Tenant
from penstock.core.spec.service import GROUP, VERSION

Schema = dict[str, Any]

_KEPT = {
    "type", "description", "default", "enum", "format", "pattern", "required",
    "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "maxProperties",
    "x-kubernetes-validations", "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
    "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string", OPERATOR_DEFAULT,
}  # fmt: skip

# Integers above 2^31 by the end of their path.
_INT64 = ("eneration", "Bytes", ".limit")


class UnsupportedSchema(Exception):
    """A construct that a structural schema cannot carry."""


def structural(schema: Schema, definitions: Schema, path: str) -> Schema:
    """Convert a field's JSON schema to a structural schema. Raises UnsupportedSchema."""
    node = _value(schema, definitions, path)
    if "description" not in node:
        raise UnsupportedSchema(f"{path}: no description")
    node["description"] += _default_note(node.pop(OPERATOR_DEFAULT, node.get("default")))
    return node


def _value(schema: Schema, definitions: Schema, path: str) -> Schema:
    """The structural schema of a field, or of a value in a map."""
    node = dict(schema)
    if "$ref" in node:
        name = node.pop("$ref").rsplit("/", 1)[1]
        node = {**definitions[name], **node}
    alternatives: Schema = {}
    if node.get("x-kubernetes-int-or-string"):
        alternatives = {"anyOf": node.pop("anyOf")}
    elif "anyOf" in node:  # `T | None`: absent is how Kubernetes says none
        options = [option for option in node.pop("anyOf") if option != {"type": "null"}]
        if len(options) != 1:
            raise UnsupportedSchema(f"{path}: a union of {len(options)} types")
        if node.get("default", ...) is None:
            del node["default"]
        return _value({**options[0], **node}, definitions, path)
    node.pop("title", None)
    if "const" in node:
        node["enum"] = [node.pop("const")]
    properties = node.pop("properties", None)
    items = node.pop("items", None)
    extra = node.pop("additionalProperties", None)
    if isinstance(extra, dict):
        node["additionalProperties"] = _value(extra, definitions, f"{path}.*")
    unknown = node.keys() - _KEPT - {"additionalProperties"}
    if unknown:
        raise UnsupportedSchema(f"{path}: {sorted(unknown)}")
    if properties is None and node.get("default") in ([], {}):
        del node["default"]  # unset stays absent
    if properties is not None:
        _add_properties(node, properties, definitions, path)
    if items is not None:
        if "x-kubernetes-list-type" not in node:
            raise UnsupportedSchema(f"{path}: no list type; see penstock.api.schema.lists")
        node["items"] = structural(items, definitions, f"{path}[]")
    if node.get("type") == "integer":
        node["format"] = "int64" if path.endswith(_INT64) else "int32"
    return dict(sorted((node | alternatives).items()))


def _add_properties(node: Schema, properties: Schema, definitions: Schema, path: str) -> None:
    """Add an object's fields. The default {} lets the API server fill in the defaults of the fields."""
    node["properties"] = {
        name: structural(child, definitions, f"{path}.{name}") for name, child in properties.items()
    }
    has_default = node.pop("default", None) is not None
    if has_default and any("default" in child for child in node["properties"].values()):
        node["default"] = {}


def _default_note(default: Any) -> str:
    """Text that ends the description of a field with a default, because `kubectl explain` prints none.

    Empty for objects, lists and empty texts.
    """
    if default in (None, "") or isinstance(default, dict | list):
        return ""
    return f" Default: {default if isinstance(default, str) else json.dumps(default)}."


def schema_of(model: type[BaseModel]) -> Schema:
    document = model.model_json_schema(by_alias=True)
    definitions = document.pop("$defs", {})
    return structural(document, definitions, "")


def inference_service_crd() -> Schema:
    """The CustomResourceDefinition of InferenceService."""
    schema = schema_of(InferenceService)
    # A Deployment's name is NAME-REVISION and a pod's label value holds NAME: both have limits.
    schema["properties"]["metadata"] = {"type": "object"}
    status = _without_defaults(schema["properties"]["status"])
    # Clients that wait for the operator see at once that it has not reconciled the service yet.
    schema["properties"]["status"] = status | {"default": {"observedGeneration": -1}}
    schema["x-kubernetes-validations"] = [
        {
            "rule": "self.metadata.name.size() <= 40 && !self.metadata.name.contains('.')",
            "message": "metadata.name must have at most 40 characters and no dots: pods are named after it",
        }
    ]
    subresources = {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }
    return _crd(KIND, PLURAL, "psvc", schema, COLUMNS, subresources)


def _without_defaults(node: Any) -> Any:
    """The schema of a status without defaults: a field that the operator has not written stays absent."""
    if isinstance(node, list):
        return [_without_defaults(each) for each in node]
    if not isinstance(node, dict):
        return node
    return {name: _without_defaults(each) for name, each in node.items() if name != "default"}


def model_route_crd() -> Schema:
    """The CustomResourceDefinition of ModelRoute."""
    schema = schema_of(ModelRoute)
    schema["properties"]["metadata"] = {"type": "object"}
    schema["properties"]["status"]["default"] = {"observedGeneration": -1}
    subresources: Schema = {"status": {}}
    return _crd(modelroute.KIND, modelroute.PLURAL, "mroute", schema, ROUTE_COLUMNS, subresources)


def lora_adapter_crd() -> Schema:
    """The CustomResourceDefinition of LoraAdapter."""
    schema = schema_of(LoraAdapter)
    schema["properties"]["metadata"] = {"type": "object"}
    status = _without_defaults(schema["properties"]["status"])
    schema["properties"]["status"] = status | {"default": {"observedGeneration": -1}}
    longest = loraadapter.MAX_NAME_LENGTH
    schema["x-kubernetes-validations"] = [
        {
            "rule": f"self.metadata.name.size() <= {longest}",
            "message": f"metadata.name must have at most {longest} characters: engines use it as a name",
        }
    ]
    subresources: Schema = {"status": {}}
    kind, plural = loraadapter.KIND, loraadapter.PLURAL
    return _crd(kind, plural, "lora", schema, ADAPTER_COLUMNS, subresources)


def external_model_crd() -> Schema:
    """The CustomResourceDefinition of ExternalModel."""
    schema = schema_of(ExternalModel)
    schema["properties"]["metadata"] = {"type": "object"}
    longest = externalmodel.MAX_NAME_LENGTH
    schema["x-kubernetes-validations"] = [
        {
            "rule": f"self.metadata.name.size() <= {longest}",
            "message": f"metadata.name must have at most {longest} characters: it is a label of metrics",
        }
    ]
    kind, plural = externalmodel.KIND, externalmodel.PLURAL
    return _crd(kind, plural, "extmodel", schema, EXTERNAL_COLUMNS, {})


def tenant_crd() -> Schema:
    """The CustomResourceDefinition of Tenant. Its objects belong to no namespace."""
    schema = schema_of(Tenant)
    schema["properties"]["metadata"] = {"type": "object"}
    status = _without_defaults(schema["properties"]["status"])
    schema["properties"]["status"] = status | {"default": {"observedGeneration": -1}}
    schema["x-kubernetes-validations"] = [
        {
            "rule": "self.metadata.name.size() <= 63 && !self.metadata.name.contains('.')",
            "message": "metadata.name must have at most 63 characters and no dots: it is a label of metrics",
        }
    ]
    crd = _crd(tenant.KIND, tenant.PLURAL, "ptenant", schema, TENANT_COLUMNS, {"status": {}})
    return crd | {"spec": crd["spec"] | {"scope": "Cluster"}}


def crds() -> list[Schema]:
    """Return all CRDs, in the order to apply."""
    return [
        inference_service_crd(), model_route_crd(), lora_adapter_crd(), tenant_crd(),
        external_model_crd(),
    ]  # fmt: skip


def _crd(
    kind: str, plural: str, short: str, schema: Schema, columns: Columns, subresources: Schema
) -> Schema:
    """The CustomResourceDefinition of a kind whose objects belong to namespaces."""
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": subresources,
        "additionalPrinterColumns": [
            {"name": n, "type": t, "jsonPath": p, "priority": level} for n, t, p, level in columns
        ],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
                "categories": ["penstock"],
            },
            "versions": [{name: part for name, part in version.items() if part != {}}],
        },
    }


class _WithoutAliases(yaml.SafeDumper):
    """Writes equal parts of a document in full: a type that two fields have is one object here."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def files() -> dict[str, str]:
    """File name -> content of every generated CRD."""
    made = {}
    for crd in crds():
        names = crd["spec"]["names"]
        folder = f"operator/penstock/api/{names['singular']}"
        note = f"# Generated from {folder} by `penstock crds`; do not edit.\n"
        text = yaml.dump(crd, Dumper=_WithoutAliases, sort_keys=False, width=100)
        made[f"{GROUP}_{names['plural']}.yaml"] = note + text
    return made
