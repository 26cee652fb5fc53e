"""pydantic and a real API server accept and refuse the same specs (property test)."""

import asyncio
import copy
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from penstock.api.generation.crdgen import schema_of
from penstock.api.inferenceservice.kind import KIND, InferenceServiceSpec
from penstock.clients.kubernetes.client import Kube, connect
from penstock.clients.kubernetes.resources import INFERENCE_SERVICES
from penstock.core.spec.service import API_VERSION
from penstock.errors import Rejected
from penstock.local.cluster import Cluster

CASES = 300
RESOURCES = ["cpu", "memory", "nvidia.com/gpu"]

Json = Any

JUNK: st.SearchStrategy[Json] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**53), 2**53),
    st.floats(-1e6, 1e6),
    st.text(max_size=6),
    st.just([]),
    st.just({}),
    st.sampled_from(["5", "1.0", "true", "512Mi ", "60", "pvc://", "file:///../x", "a\n"]),
)
OBJECTS = st.dictionaries(st.text(max_size=5), JUNK, max_size=2)
KEYS = st.text(max_size=5) | st.sampled_from(
    ["app.kubernetes.io/managed-by", "app.kubernetes.io/name", "serving.penstock.dev/cohort"]
)
MAPS = st.dictionaries(KEYS, st.text(max_size=6), max_size=2)


def values(node: dict[str, Json]) -> st.SearchStrategy[Json]:
    """Values for a schema node: mostly valid, sometimes just outside its bounds."""
    if "enum" in node:
        return st.sampled_from(node["enum"])
    if "x-kubernetes-int-or-string" in node:
        return counts_or_texts(node)
    match node["type"]:
        case "object" if "properties" in node:
            required = set(node.get("required", []))
            fields = {name: values(child) for name, child in node["properties"].items()}
            return st.fixed_dictionaries(
                {name: fields[name] for name in fields if name in required},
                optional={name: fields[name] for name in fields if name not in required},
            )
        case "object" if "additionalProperties" in node:
            inner = node["additionalProperties"]
            if inner == {"type": "string"}:
                return MAPS | OBJECTS
            names = st.sampled_from([*RESOURCES, "rdma/hca", "gpu", "hugepages-2Mi"]) | KEYS
            return st.dictionaries(names, values(inner), max_size=3) | OBJECTS
        case "object":
            return OBJECTS
        case "array":
            return st.lists(values(node["items"]), max_size=2)
        case "boolean":
            return st.booleans()
        case "integer":
            low, high = node.get("minimum", 0), node.get("maximum", 200)
            return st.integers(low, high) | st.sampled_from([low, high, 16, 64])
        case "number":
            low, high = node["minimum"], node["maximum"]
            return st.floats(low, high) | st.sampled_from([low, high, 0.5])
        case "string":
            return texts(node)
    raise NotImplementedError(node)


def counts_or_texts(node: dict[str, Json]) -> st.SearchStrategy[Json]:
    """Whole numbers, quantities and percentages."""
    numbers = st.integers(-1, 2000) | st.sampled_from([0, 1])
    if "pattern" in node:
        usual = st.sampled_from(["0", "1.5", "500m", "2Gi", "1e3"])
        return numbers | usual | st.from_regex(node["pattern"], fullmatch=True)
    return numbers | st.sampled_from(["0%", "25%", "100%", "101%", "1"])


def texts(node: dict[str, Json]) -> st.SearchStrategy[str]:
    """Texts that match a rule of the node, sometimes slightly too long."""
    rules = [rule["rule"] for rule in node.get("x-kubernetes-validations", [])]
    if not rules:
        return st.text(min_size=node.get("minLength", 0), max_size=12)
    patterns = [p for rule in rules for p in re.findall(r"self\.matches\(r?'(\^.*?\$)'\)", rule)]
    patterns = [
        pattern for pattern in patterns if not pattern.startswith("^[^")
    ]  # of no value as a whole
    matching = st.one_of([st.from_regex(pattern, fullmatch=True) for pattern in patterns])
    if any("double(self)" in rule for rule in rules):
        matching = st.sampled_from(["0.5", "0.99", "1", "2.50", "1000001", "-1", "1e3"]) | matching
    low, high = node.get("minLength", 0), node.get("maxLength", 4096)
    fitting = matching.filter(lambda text: low <= len(text) <= high)
    return st.one_of(fitting, fitting, fitting, matching)


@st.composite
def invalid_specs(draw: st.DrawFn, spec: Json) -> Json:
    """The spec with one change: another value, or an unknown field."""
    spec = copy.deepcopy(spec)
    places = list(inner_fields(spec))
    if not places:
        return spec
    node, name = draw(st.sampled_from(places))
    if draw(st.booleans()):
        beside = similar_values(node[name])
        node[name] = draw(st.sampled_from(beside) | JUNK if beside else JUNK)
    else:
        node[draw(st.sampled_from(["max_model_len", "unknown", "", name.upper()]))] = draw(JUNK)
    return spec


def similar_values(value: Json) -> list[Json]:
    if isinstance(value, bool):
        return [not value, str(value).lower()]
    if isinstance(value, int | float):
        return [value + 1, value - 1, float(value), str(value)]
    if isinstance(value, str):
        return [
            f"{value}\n",
            value[:-1],
            f" {value}",
            value.upper(),
            value * 40,
            f"{value}/..",
            [value],
        ]
    return []


def inner_fields(node: Json) -> Any:
    if isinstance(node, dict):
        for name, child in node.items():
            yield node, name
            yield from inner_fields(child)
    elif isinstance(node, list):
        for child in node:
            yield from inner_fields(child)


def coherent(spec: Json) -> Json:
    """The spec with rules between its fields repaired."""
    scaling, engine = spec.get("scaling", {}), spec.get("engine", {})
    low, high = sorted((scaling.get("minReplicas", 1), scaling.get("maxReplicas", 1)))
    if {"maxNumSeqs", "maxNumBatchedTokens"} <= engine.keys():
        seqs, budget = sorted((engine["maxNumSeqs"], engine["maxNumBatchedTokens"]))
        budgets = {"maxNumSeqs": min(seqs, 4096), "maxNumBatchedTokens": max(budget, 16)}
        engine = engine | budgets
    if (objectives := spec.get("objectives")) is not None:
        spec = spec | {"objectives": {"ttft": "2s"} | objectives}
        steered = ("targets", "mode")
        scaling = {k: v for k, v in scaling.items() if k not in steered}
    if rollout := spec.get("rollout"):
        spec = spec | {"rollout": coherent_rollout(rollout)}
    kept = {k: v for k, v in spec.items() if k != "replicas"}
    if scaling.get("mode") == "External":
        kept["replicas"] = spec.get("replicas", 1)
    kept |= {"resources": coherent_resources(kept["resources"])} if "resources" in kept else {}
    variants = kept.pop("variants", []) if spec.get("objectives") else kept.pop("variants", [])[:0]
    return kept | {
        "variants": [coherent_variant(v, i) for i, v in enumerate(variants)],
        "scaling": scaling | {"minReplicas": low, "maxReplicas": high},
        "engine": engine,
    }


def coherent_variant(variant: Json, number: int) -> Json:
    tolerations = [
        {k: v for k, v in each.items() if k != "value"} | {"operator": "Exists"}
        for each in variant.get("tolerations", [])
    ]
    made = variant | {"name": f"v{number}", "minReplicas": 0, "nodeSelector": {"zone": "a"}}
    return made | {
        "tolerations": tolerations,
        "resources": coherent_resources(variant.get("resources", {})),
    }


def coherent_resources(resources: Json) -> Json:
    """The resources with known names, enough memory, and requests within limits."""
    limits = dict(zip(RESOURCES, resources.get("limits", {}).values(), strict=False))
    if "nvidia.com/gpu" in limits:
        limits["nvidia.com/gpu"] = 2
    if "memory" in limits:
        limits["memory"] = "2Gi"
    made = {"limits": limits, "claims": [{"name": "gpu"}] if resources.get("claims") else []}
    requests = {name: limits[name] for name in limits if "requests" in resources}
    return made | ({"requests": requests} if requests else {})


def coherent_rollout(rollout: Json) -> Json:
    """The rollout with the member of its strategy only."""
    strategy = rollout.get("strategy", "Rolling")
    members = {"canary": "Canary", "blueGreen": "BlueGreen", "rolling": "Rolling"}
    made = {k: v for k, v in rollout.items() if members.get(k, strategy) == strategy}
    if "canary" in made:
        made["canary"] = coherent_canary(made["canary"])
    if "rolling" in made:
        made["rolling"] = made["rolling"] | {"maxUnavailable": 1}
    return made


def coherent_canary(canary: Json) -> Json:
    """Weights in order, metrics with unique names and a bound, and variables with one value."""
    made = dict(canary)
    if {"minWeightPercent", "maxWeightPercent"} <= canary.keys():
        low, high = sorted((canary["minWeightPercent"], canary["maxWeightPercent"]))
        made |= {"minWeightPercent": low, "maxWeightPercent": high}
    if metrics := canary.get("metrics"):
        bounds = {"minimum": "-1", "maximum": "1.5"}
        made["metrics"] = [m | bounds | {"name": f"m{i}"} for i, m in enumerate(metrics)]
    if evaluation := canary.get("evaluation"):
        env = [
            {k: v for k, v in each.items() if k != "value"} | {"name": f"E{i}"}
            for i, each in enumerate(evaluation.get("env", []))
        ]
        made["evaluation"] = evaluation | {"env": env}
        if "resources" in evaluation:
            resources = coherent_resources(evaluation["resources"])
            made["evaluation"]["resources"] = resources
    return made


ANY = values(schema_of(InferenceServiceSpec))
GOOD = ANY.map(coherent)
SPECS = st.one_of(
    ANY, GOOD, GOOD.flatmap(invalid_specs), GOOD.flatmap(invalid_specs).flatmap(invalid_specs), JUNK
)


def pydantic_error(spec: Json) -> str | None:
    """The reason for a refusal; None if the spec is accepted."""
    try:
        InferenceServiceSpec.model_validate(spec)
    except ValidationError as error:
        return str(error)
    return None


async def server_error(kube: Kube, spec: Json) -> str | None:
    metadata = {"name": "agreement", "namespace": "default"}
    body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}
    try:
        # An unknown field is pruned, as the operator ignores it.
        await kube.create(
            INFERENCE_SERVICES, "default", body, dryRun="All", fieldValidation="Ignore"
        )
    except Rejected as error:
        return str(error)
    return None


@pytest.mark.cluster
def test_pydantic_and_the_api_server_agree(cluster: Cluster) -> None:
    verdicts: Counter[bool] = Counter()
    with asyncio.Runner() as runner:
        kube = runner.run(connect(cluster.kubeconfig))

        @settings(max_examples=CASES, deadline=None, derandomize=True)
        @given(SPECS)
        def check_agreement(spec: Json) -> None:
            ours, theirs = pydantic_error(spec), runner.run(server_error(kube, spec))
            verdicts[ours is None] += 1
            assert (ours is None) == (theirs is None), f"pydantic: {ours}; API server: {theirs}"

        try:
            check_agreement()
        finally:
            runner.run(kube.close())
    print(f"{verdicts[True]} specs taken by both, {verdicts[False]} refused by both")
    assert min(verdicts[True], verdicts[False]) > CASES // 10
