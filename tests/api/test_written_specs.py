"""Services and adapters of examples/, fragments of the pages: this version of the operator takes them all."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e.documentation.code_blocks import read_blocks

from penstock.api.conversion.convert import to_core
from penstock.api.conversion.settings import SETTINGS
from penstock.api.loraadapter.kind import LoraAdapterSpec
from penstock.core.adapters.resource import adapter_resource
from penstock.core.manifests.allowed_pods import PodLimits
from penstock.core.manifests.engine import deployment, own_pods
from penstock.core.observed.name_claims import adapter_claim, service_claim
from penstock.core.observed.name_index import NameIndex
from penstock.core.reconcile.adapter_acceptance import refusal
from penstock.core.runtimes.table import runtime_of
from penstock.core.spec.adapter_sources import adapter_sources, reads_adapters

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "concepts" / "engine-settings.md"
LIMITS = PodLimits(allowed_host_paths=("/models",), node_cache_path="/var/lib/penstock/models")
METADATA = {
    "namespace": "n",
    "uid": "u",
    "generation": 1,
    "creationTimestamp": "2026-01-01T00:00:00Z",
}


# Example with the service of an example that has adapters only. None: the service is the reader's own.
SERVICES = {
    "dedicated-adapter.yaml": "lora-service.yaml",
    "lora-adapter.yaml": None,
    "tiny-adapters.yaml": "tiny-model.yaml",
}


def bodies(name: str, kind: str) -> list[Any]:
    """The objects of one kind in an example."""
    found = yaml.safe_load_all((ROOT / "examples" / name).read_text())
    return [body for body in found if body.get("kind") == kind]


def example_names() -> list[str]:
    folder = ROOT / "examples"
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*.yaml"))


def examples() -> Iterator[Any]:
    for name in example_names():
        for body in bodies(name, "InferenceService"):
            yield pytest.param(body, id=name)


def examples_of_adapters() -> Iterator[Any]:
    for name in example_names():
        if adapters := bodies(name, "LoraAdapter"):
            service = SERVICES.get(name, name)
            services = bodies(service, "InferenceService") if service else []
            yield pytest.param(adapters, services, id=name)


def fragments() -> Iterator[Any]:
    """Yield the fragments of specs in all pages, as whole services."""
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for block in read_blocks(page.read_text()):
            if block.language == "yaml" and block.text.startswith("spec:"):
                (found,) = yaml.safe_load_all(block.text)
                spec = {"model": {"uri": "pvc://models/any"}, **found["spec"]}
                body = {"metadata": {"name": "fragment"}, "spec": spec}
                yield pytest.param(body, id=f"{page.name}:{block.line}")


@pytest.mark.parametrize("body", [*examples(), *fragments()])
def test_it_is_accepted_and_makes_pods(body: Any) -> None:
    spec = to_core(body | {"metadata": METADATA | body["metadata"]})
    assert LIMITS.violation(spec) is None
    made = deployment(spec, "r", own_pods(spec, "r", "image"))
    (container, *_) = made["spec"]["template"]["spec"]["containers"]
    assert container["name"] == "engine"


@pytest.mark.parametrize(("adapters", "services"), [*examples_of_adapters()])
def test_adapters_are_accepted_by_their_service(adapters: list[Any], services: list[Any]) -> None:
    for body in adapters:
        LoraAdapterSpec.model_validate(body["spec"])
    by_name = {
        body["metadata"]["name"]: body | {"metadata": METADATA | body["metadata"]}
        for body in services
    }
    adapters = [body | {"metadata": METADATA | body["metadata"]} for body in adapters]
    names = NameIndex(map(adapter_claim, adapters))
    for claim in filter(None, map(service_claim, by_name.values())):
        names.put(claim)
    for resource in map(adapter_resource, adapters if services else ()):
        service = by_name[resource.service]
        spec = to_core(service)
        sources, has_cache = adapter_sources(spec), reads_adapters(spec)
        assert refusal(resource, service, sources, names, has_cache=has_cache) is None


def test_the_page_has_an_example_of_every_part_of_the_engine() -> None:
    text = PAGE.read_text()
    parts = {path.split(".")[1] for path in SETTINGS if path.startswith("engine.")}
    simple = {
        "maxModelLen", "maxNumSeqs", "maxNumBatchedTokens", "dtype", "seed", "memoryUtilizationPercent",
    }  # fmt: skip
    assert [part for part in parts - simple if f"    {part}:" not in text] == []


def test_the_page_names_the_fields_that_vllm_does_not_take() -> None:
    def paths(settings: dict[str, str]) -> set[str]:
        return {path for each in runtime_of(settings).arguments for path in each.paths}

    missing = paths({}) - paths({"runtime.type": "VLLM"})
    (row,) = (line for line in PAGE.read_text().splitlines() if line.startswith("| fields of"))
    named = {f"engine.{each}" for each in row.split("|")[3].split("`")[1::2]}
    assert named == {path for path in missing if path.startswith("engine.")}
