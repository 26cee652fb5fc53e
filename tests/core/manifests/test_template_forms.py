"""Templates without limits: each makes pods that Penstock can use, or is refused with a sentence."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.specs.random_templates import OVERRIDES
from tests.support.specs.service_spec import service_spec

from penstock.core.manifests.allowed_pods import PodLimits
from penstock.core.manifests.engine import (
    deployment,
    own_pods,
    preflight,
    preflight_with_engine_resources,
)
from penstock.core.manifests.model_fetch import with_resolved_uris
from penstock.core.manifests.placement import with_accelerator_memory
from penstock.core.observed.preflight import ResolvedModel
from penstock.core.spec.service import ServiceSpec

UNLIMITED = PodLimits(allow_unrestricted_templates=True)
URI = "hf://org/name"
MODELS = {URI: ResolvedModel(URI, f"{URI}@{'a' * 40}", 5)}
FETCHED = service_spec(model_uri=URI, model_cache_claim="cache", model_secret="hub")

ANY = st.none() | st.sampled_from([5, "x", [], {}, [None]])
DIRECTIVES = st.sampled_from(
    [{"$patch": "replace"}, {"$patch": "delete"}, {"$patch": 7}, {"$retainKeys": ["name"]}]
)
UNNAMED = {"mountPath": "/x", "name": [None]}
NAMES = st.sampled_from(["engine", "fetch-model", "hold-model", "side", "model", "tmp"])


def with_directives(
    key: str, keys: st.SearchStrategy[Any], **values: Any
) -> st.SearchStrategy[Any]:
    """Lists of objects with a key, and directives beside or in place of it."""
    objects = st.fixed_dictionaries({key: keys}, optional={k: v | ANY for k, v in values.items()})
    beside = st.tuples(objects, DIRECTIVES).map(lambda pair: pair[0] | pair[1])
    return st.lists(objects | beside | DIRECTIVES, max_size=3) | ANY


MOUNTS = with_directives("mountPath", st.sampled_from(["/models", "/tmp", "/x"]), name=NAMES)
CONTAINERS = with_directives(
    "name", NAMES, volumeMounts=MOUNTS, env=with_directives("name", NAMES), resources=DIRECTIVES,
    args=ANY, image=st.just("x"),
)  # fmt: skip
PATCHED = st.fixed_dictionaries(
    {},
    optional={
        "containers": CONTAINERS,
        "initContainers": CONTAINERS,
        "volumes": with_directives("name", NAMES, emptyDir=st.just({})),
        "$setElementOrder/containers": st.just([{"name": "engine"}]),
    },
)
TEMPLATES = st.fixed_dictionaries(
    {}, optional={"spec": PATCHED | OVERRIDES | ANY, "metadata": st.just({"labels": None}) | ANY}
)


def assert_usable(spec: ServiceSpec) -> None:
    """Build all that the reconciler builds of a template, and check what the engine mounts."""
    pods = own_pods(spec, "r", "image")
    pods = replace(pods, serve=with_resolved_uris(pods.serve, MODELS))
    made = [deployment(spec, "r", pods, variant=variant) for variant in ("", "large")]
    check = preflight(spec, "r", pods, variant="large")
    preflight_with_engine_resources(with_accelerator_memory(check, 5), made[0])
    assert pods.image
    for pod in (pods.preflight, *(each["spec"]["template"]["spec"] for each in made)):
        (engine,) = (each for each in pod["containers"] if each["name"] == "engine")
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert {mount["name"] for mount in engine.get("volumeMounts", ())} <= volumes


@settings(max_examples=1000)
@given(TEMPLATES, st.sampled_from([service_spec(), FETCHED]))
@example({"spec": {"initContainers": [{"name": "side", "args": 5}]}}, FETCHED)
@example({"spec": {"containers": [{"name": "engine", "volumeMounts": [UNNAMED]}]}}, FETCHED)
def test_each_template_makes_usable_pods_or_is_refused(template: Any, spec: ServiceSpec) -> None:
    spec = replace(spec, template=template)
    PodLimits().violation(spec)
    if UNLIMITED.violation(spec) is None:
        assert_usable(spec)


@pytest.mark.parametrize(
    ("pod", "sentence"),
    [
        (
            {"volumes": [{"$patch": "replace"}]},
            "spec.template.spec.volumes must be a list of objects",
        ),
        ({"volumes": None}, "spec.template.spec.volumes must be a list of objects with names"),
        ({"$retainKeys": ["containers"]}, "spec.template.spec.$retainKeys is a directive"),
        (
            {"containers": [{"name": "engine", "env": [{"name": "A", "$patch": "replace"}]}]},
            "spec.template.spec.containers[0].env[0].$patch is a directive",
        ),
        (
            {"containers": [{"name": "engine", "$patch": "delete"}]},
            "spec.template makes pods without the container engine",
        ),
        (
            {"volumes": [{"name": "tmp", "$patch": "delete"}]},
            "spec.template makes pods without the volume tmp of the container engine",
        ),
        (
            {"initContainers": [{"name": "fetch-model", "args": []}]},
            "spec.template makes pods without the arguments of the container fetch-model",
        ),
    ],
    ids=str,
)
def test_a_template_without_a_pod_is_refused_by_its_path(pod: Any, sentence: str) -> None:
    violation = UNLIMITED.violation(replace(FETCHED, template={"spec": pod}))
    assert violation is not None
    assert violation.reason == "TemplateNotAllowed"
    assert violation.message.startswith(sentence)


def test_entries_of_lists_may_be_deleted() -> None:
    entries = [{"name": "A", "$patch": "delete"}, {"name": "B", "value": "b"}]
    template = {"spec": {"containers": [{"name": "engine", "env": entries}]}}
    spec = replace(FETCHED, template=template)
    assert UNLIMITED.violation(spec) is None
    assert_usable(spec)
