"""The schema of the chart's values: Helm refuses values that it does not allow."""

from typing import Any

from penstock.chart.values.values import Values


def schema() -> dict[str, Any]:
    """JSON schema of values.yaml, without references, so that an error names the value's path."""
    document = Values.model_json_schema(by_alias=True)
    made = _inlined(document, document["$defs"])
    made["properties"]["global"] = {"type": "object"}  # Helm gives it to every subchart
    return {"$schema": "http://json-schema.org/draft-07/schema#", **made}


def _inlined(node: Any, definitions: dict[str, Any]) -> Any:
    """The node with definitions in place of references, and without titles and defaults."""
    if isinstance(node, list):
        return [_inlined(each, definitions) for each in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        node = definitions[node["$ref"].rsplit("/", 1)[1]] | node
    made: dict[str, Any] = {}
    for key, child in node.items():
        if key == "properties":
            made[key] = {name: _inlined(each, definitions) for name, each in child.items()}
        elif key == "description":
            made[key] = " ".join(child.split())
        elif key not in ("$ref", "$defs", "title", "default"):
            made[key] = _inlined(child, definitions)
    if "properties" in made:  # a section that is set to null has no defaults
        made["required"] = list(made["properties"])
    return made
