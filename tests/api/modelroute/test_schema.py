"""ModelRoutes that pydantic and a real API server accept or refuse."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from penstock.api.modelroute.kind import ModelRouteSpec
from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.resources import MODEL_ROUTES
from penstock.core.routing.header_pattern import check_expressions
from penstock.core.spec.service import API_VERSION
from penstock.errors import Rejected

ROOT = Path(__file__).parents[3]
REFS = [{"name": "old", "weight": 90}, {"kind": "InferenceService", "name": "new", "weight": 10}]
RULE: dict[str, Any] = {"name": "all", "backendRefs": REFS}


def spec(rule: object = RULE, **more: object) -> dict[str, object]:
    return {"modelName": "chat", "rules": [rule], **more}


def with_refs(*refs: object) -> dict[str, object]:
    return spec({"name": "all", "backendRefs": list(refs)})


def matching(**match: object) -> dict[str, object]:
    return spec(RULE | {"matches": [match]})


HEADER = {"name": "X-Tenant", "value": "acme"}
MIRROR = {"backendRef": {"name": "new"}}
GOOD = [
    spec(),
    with_refs({"name": "old"}),
    with_refs({"name": "old", "weight": 1_000_000}),
    spec(RULE | {"sessionAffinity": {"type": "User"}}),
    spec(RULE | {"sessionAffinity": {"type": "Header", "header": "x-tenant"}}),
    matching(headers=[HEADER, {"name": "b", "type": "Exact", "value": "1"}], users=["ada"]),
    spec(RULE | {"matches": [{}, {"users": ["ada"]}]}),
    matching(tenants=["team-a", "team-a.b"], costTiers=["economy"], regions=["eu-west"]),
    matching(headers=[{"name": "x-team", "type": "RegularExpression", "value": "^team-(a|b)$"}]),
    matching(headers=[{"name": "x-team", "type": "RegularExpression", "value": "(a+)+$"}]),
    matching(headers=[{"name": "x-team", "type": "Exact", "value": "team-(a"}]),
    matching(tasks=["Chat", "Embedding"], serviceTiers=["auto", "flex"]),
    matching(promptTokens={"min": 0, "max": 0}, outputTokens={"min": 7}),
    spec(RULE | {"mirrors": [MIRROR | {"revision": "66af9a74", "percent": 1}, MIRROR]}),
    spec(RULE | {"timeouts": {"request": "1h30m", "firstToken": "500ms"}}),
    spec(RULE | {"fallbacks": [{"name": "old"}, {"kind": "LoraAdapter", "name": "old"}]}),
    spec(RULE | {"fallbacks": [{"name": "new", "reasons": ["Overload", "LateFirstToken"]}]}),
    spec(aliases=["gpt-4o", "gpt_4"]),
    spec(RULE | {"samplingLimits": {"maxOutputTokens": 4096, "maxTemperature": "0.7"}}),
    spec(RULE | {"samplingLimits": {"maxChoices": 1, "maxTopLogprobs": 0}}),
    matching(modelNames=["chat", "gpt-4o"]),
    spec(modelName="Qwen3-0.6B", rules=[RULE, RULE | {"name": "rest"}]),
]
NAMED = "name of an InferenceService"
BAD = [
    (spec(modelName="a/b"), "spec.modelName may have"),
    (spec(modelName=""), ""),
    (spec(aliases=["gpt-4o", "chat"]), "aliases must not contain modelName"),
    (spec(RULE | {"samplingLimits": {}}), "one of the limits must be set"),
    (spec(RULE | {"samplingLimits": {"maxOutputTokens": 0}}), ""),
    (spec(RULE | {"samplingLimits": {"maxTemperature": "3"}}), "must be from 0 to 2"),
    (spec(RULE | {"samplingLimits": {"maxTemperature": 1}}), ""),
    (spec(aliases=["a/b"]), "spec.aliases may have"),
    (spec(aliases=["a" * 8192]), ""),
    (spec(aliases=[f"a{n}" for n in range(17)]), ""),
    (matching(modelNames=["a/b"]), "modelNames may have"),
    ({"modelName": "chat", "rules": []}, ""),
    ({"modelName": "chat"}, ""),
    (spec({"backendRefs": REFS}), ""),
    (spec(RULE | {"name": "All"}), "lower-case letters"),
    (with_refs(), ""),
    (with_refs({"name": "old", "weight": 0}), "must have a weight above 0"),
    (with_refs({"name": "other/old"}), NAMED),
    (with_refs({"name": "old", "weight": -1}), ""),
    (with_refs({"name": "old", "kind": "Service"}), ""),
    (spec(RULE | {"fallbacks": [{"name": "new", "reasons": ["Slow"]}]}), ""),
    (spec(RULE | {"fallbacks": [{"name": "new", "reasons": ["Error", "Error"]}]}), ""),
    (spec(RULE | {"fallbacks": [{"name": "new"}, {"name": "new"}]}), ""),
    (spec(RULE | {"fallbacks": [{"name": f"new-{n}"} for n in range(5)]}), ""),
    (spec(RULE | {"sessionAffinity": {"type": "Header"}}), "if, and only if, type is Header"),
    (
        spec(RULE | {"sessionAffinity": {"type": "User", "header": "x-tenant"}}),
        "only if, type is Header",
    ),
    (spec(RULE | {"sessionAffinity": {}}), ""),
    (matching(headers=[{"name": "x tenant", "value": "a"}]), "name of an HTTP header"),
    (matching(headers=[{"name": "x-tenant", "value": ""}]), ""),
    (matching(headers=[{"name": "a", "type": "RegularExpression", "value": "team-(a"}]), "regular"),
    (matching(headers=[{"name": "a", "type": "RegularExpression", "value": r"(a)\1"}]), "regular"),
    (matching(headers=[{"name": "a", "type": "Prefix", "value": "a"}]), ""),
    (matching(users=[7]), ""),
    (matching(tenants=["Team A"]), "name of an object"),
    (matching(tenants=["a" * 254]), ""),
    (matching(costTiers=[""]), ""),
    (matching(regions=["eu west"]), "value of a label"),
    (matching(tasks=["Sing"]), ""),
    (matching(serviceTiers=["fast"]), ""),
    (matching(promptTokens={}), "min or max must be set"),
    (matching(outputTokens={"min": 8, "max": 7}), "min must not be greater than max"),
    (matching(outputTokens={"max": -1}), ""),
    (spec(RULE | {"mirrors": [MIRROR | {"percent": 0}]}), ""),
    (spec(RULE | {"mirrors": [{"backendRef": {"name": "New"}}]}), NAMED),
    (spec(RULE | {"timeouts": {"request": "0s"}}), "must not be zero"),
    (spec(RULE | {"timeouts": {"request": "1.5s"}}), "must be a duration"),
]
# Lists with two entries of one key.
TWICE = [
    matching(users=["ada", "ada"]),
    matching(tenants=["team-a", "team-a"]),
    matching(tasks=["Chat", "Chat"]),
    with_refs({"name": "old"}, {"name": "old", "kind": "InferenceService"}),
    with_refs({"name": "old"}, {"name": "old"}),
    spec(aliases=["gpt-4o", "gpt-4o"]),
    spec(rules=[RULE, RULE]),
    matching(headers=[HEADER, HEADER]),
]


def pydantic_error(wanted: object) -> str | None:
    try:
        ModelRouteSpec.model_validate(wanted)
    except ValidationError as error:
        return str(error)
    return None


@pytest.mark.parametrize("wanted", GOOD)
def test_valid_routes_are_accepted(wanted: object) -> None:
    assert pydantic_error(wanted) is None


def test_the_example_is_valid() -> None:
    body = yaml.safe_load((ROOT / "examples" / "model-route.yaml").read_text())
    assert pydantic_error(body["spec"]) is None
    check_expressions(body["spec"]["rules"])


@pytest.mark.parametrize(("wanted", "sentence"), BAD)
def test_invalid_routes_are_refused_with_a_sentence(wanted: object, sentence: str) -> None:
    refusal = pydantic_error(wanted)
    assert refusal is not None
    assert sentence in refusal


@pytest.mark.parametrize("wanted", TWICE)
def test_two_entries_of_one_key_are_refused(wanted: object) -> None:
    assert "two entries" in (pydantic_error(wanted) or "")


@pytest.mark.cluster
async def test_api_server_agrees(kube: Kube) -> None:
    async def server_error(wanted: object) -> str | None:
        body = {
            "apiVersion": API_VERSION,
            "kind": "ModelRoute",
            "metadata": {"name": "agreement", "namespace": "default"},
            "spec": wanted,
        }
        try:
            await kube.create(MODEL_ROUTES, "default", body, dryRun="All", fieldValidation="Strict")
        except Rejected as error:
            return str(error)
        return None

    for wanted in GOOD:
        assert await server_error(wanted) is None, wanted
    for wanted, sentence in BAD:
        refusal = await server_error(wanted)
        assert refusal is not None, wanted
        assert sentence in refusal
    for wanted in TWICE:
        refusal = await server_error(wanted)
        assert refusal is not None
        assert "Duplicate value" in refusal
