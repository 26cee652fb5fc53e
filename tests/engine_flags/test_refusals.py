"""Settings that no engine can follow: the spec is refused, or the preflight refuses them by their field."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.engine_flags.conftest import Places
from tests.engine_flags.service_engine import preflight, service

from penstock.api.conversion.convert import InvalidService, to_core

Engine = dict[str, Any]


def speculative(method: str, uri: str | None = None, **more: Any) -> Engine:
    model = {} if uri is None else {"model": {"uri": uri}}
    return {"speculative": {"method": method, "numSpeculativeTokens": 2} | model | more}


def template(key: str) -> Engine:
    reference = {"name": "templates", "key": key}
    return {"parsers": {"chatTemplate": {"configMapKeyRef": reference}}}


@pytest.mark.parametrize(
    ("engine", "field"),
    [
        ({"quantization": {"method": "awq"}}, "spec.engine.quantization.method"),
        ({"kvCache": {"dtype": "fp8_e5m2"}}, "spec.engine.kvCache.dtype"),
        (speculative("mtp"), "spec.engine.speculative.method"),
        (speculative("eagle3", "file:///head"), "spec.engine.speculative.method"),
        ({"parsers": {"toolCall": "pythonic"}}, "spec.engine.parsers.toolCall"),
        ({"parsers": {"reasoning": "granite"}}, "spec.engine.parsers.reasoning"),
        ({"extraArgs": ["--no-enable-lora"]}, "spec.engine.lora"),
        ({"extraArgs": ["--num-gpu-blocks-override=9"]}, "spec.engine.kvCache.memory"),
        ({"extraArgs": ["--otlp-traces-endpoint", "x"]}, "spec.tracing.exporterEndpoint"),
        ({"extraArgs": ["--shutdown_timeout=1"]}, "spec.terminationGracePeriodSeconds"),
        ({"extraArgs": ["--help"]}, "spec.engine.extraArgs must not have --help"),
        ({"extraArgs": ["--scope=folder"]}, "only the preflight has this flag"),
        ({"extraArgs": ["--api-key=a"]}, "spec.engine.extraArgs must not have --api-key"),
    ],
)
def test_the_spec_is_refused(engine: Engine, field: str, places: Places) -> None:
    with pytest.raises(InvalidService, match=field) as refused:
        to_core(service(places.model, {"engine": engine}))
    assert refused.value.reason == "UnsupportedByRuntime"


@pytest.mark.parametrize(
    ("engine", "field"),
    [
        (speculative("draft_model", "file:///nowhere"), "spec.engine.speculative.model.uri"),
        (speculative("eagle", "file:///nowhere"), "spec.engine.speculative.model.uri"),
        ({"parallelism": {"tensor": 3}}, "spec.engine.parallelism"),
        ({"parallelism": {"pipeline": 60}}, "spec.engine.parallelism"),
        ({"parallelism": {"expert": {"mode": "Enabled"}}}, "spec.engine.parallelism"),
        (template("absent"), "spec.engine.parsers.chatTemplate"),
        (template("broken"), "spec.engine.parsers.chatTemplate"),
        ({"extraArgs": ["--enable-magic"]}, "No such option: --enable-magic .* change spec.engine"),
        ({"extraArgs": ["--max-logprobs=x"]}, "'--max-logprobs': .* change spec.engine"),
        ({"extraArgs": ["--max-logprobs"]}, "'--max-logprobs' requires an argument.*change spec.engine"),
        ({"extraArgs": ["stray"]}, "stray.*: change spec.engine"),
        ({"extraArgs": ["--trust-remote-code"]}, "--trust-remote-code: .* change spec.engine"),
        ({"extraArgs": ["--lora-modules=a=b"]}, "--lora-modules needs spec.engine.lora"),
        (
            {"extraArgs": ["--lora-modules=a=/none"], "lora": {"maxAdapters": 1}},
            "--lora-modules a: .* spec.engine.extraArgs",
        ),
        ({"extraArgs": ['--default-chat-template-kwargs={"messages": 1}']}, "spec.engine.extraArgs"),
        ({"maxModelLen": 100_000}, "spec.engine.maxModelLen"),
        ({"kvCache": {"memory": "1Mi"}}, "spec.engine.kvCache.memory"),
        ({"kvCache": {"offload": {"cpu": {"memory": "4Gi"}}}}, "spec.resources.limits.memory"),
        ({"lora": {"maxAdapters": 1000, "maxRank": 512}}, "spec.resources.limits.memory"),
    ],
)  # fmt: skip
def test_the_preflight_names_the_field(engine: Engine, field: str, places: Places) -> None:
    verdict = preflight(places.model, {"engine": engine}, places.config_maps)
    assert not verdict["ok"]
    assert re.search(field, verdict["message"]), verdict


def test_a_head_needs_a_model_on_one_rank(places: Places, tmp_path: Path) -> None:
    head = speculative("eagle", f"file://{places.model}")
    verdict = preflight(places.model, {"engine": head | {"parallelism": {"tensor": 2}}})
    assert "spec.engine.speculative" in verdict["message"]
    assert "spec.engine.parallelism" in verdict["message"]


def test_a_quantized_checkpoint_is_not_rounded_again(places: Places, tmp_path: Path) -> None:
    model = tmp_path / "quantized"
    shutil.copytree(places.model, model)
    config = json.loads((model / "config.json").read_text())
    quantized = {
        "quant_method": "fp8",
        "weight_block_size": [128, 128],
        "activation_scheme": "dynamic",
    }
    (model / "config.json").write_text(json.dumps(config | {"quantization_config": quantized}))
    verdict = preflight(model, {"engine": {"quantization": {"method": "int8"}}})
    assert verdict["reason"] == "QuantizedAlready"
    assert "spec.engine.quantization" in verdict["message"]


@pytest.mark.parametrize("bounds", [{"promptLookupMin": 7}, {"promptLookupMax": 1}])
def test_one_bound_of_ngrams_is_enough(bounds: dict[str, int], places: Places) -> None:
    verdict = preflight(places.model, {"engine": speculative("ngram", ngram=bounds)})
    assert verdict["ok"], verdict
