"""Specs drawn at random over all fields; benchmarks/cluster/random_specs.py draws more of them."""

import asyncio
from pathlib import Path

import pytest
from benchmarks.cluster.random_specs import follow_all, report
from tests.engine_flags.service_engine import preflight
from tests.support.cluster.engine_agreement import as_manifest
from tests.support.engine.small_models import make_models

from penstock.clients.kubernetes.client import connect
from penstock.local.cluster import Cluster

SEED, NUMBERS = 14, range(8)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    make_models(folder)
    return folder


@pytest.mark.cluster
def test_engines_of_accepted_specs_agree_with_them(
    cluster: Cluster, models: Path, tmp_path: Path
) -> None:
    async def follow() -> None:
        async with await connect(cluster.kubeconfig) as kube:
            outcomes = await follow_all(kube, models, tmp_path, SEED, list(NUMBERS))
        assert not any(outcome.problems for outcome in outcomes), report(outcomes, SEED)
        kinds = {outcome.kind for outcome in outcomes}
        assert {"started", "preflight"} <= kinds, [as_manifest(each.spec) for each in outcomes]

    asyncio.run(follow())


def test_weights_in_the_order_of_their_activations_are_not_split(models: Path) -> None:
    verdict = preflight(models / "gptq", {"engine": {"parallelism": {"tensor": 2}}})
    assert verdict["reason"] == "CannotSplit"
    assert "spec.engine.parallelism.tensor" in verdict["message"]


def test_bad_sampling_defaults_of_a_model_are_found(models: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for file in (models / "plain").iterdir():
        (model / file.name).write_bytes(file.read_bytes())
    (model / "generation_config.json").write_text('{"temperature": "hot"}')
    verdict = preflight(model, {})
    assert verdict["reason"] == "BadGenerationConfig"
    assert "spec.engine.generation" in verdict["message"]
    assert preflight(model, {"engine": {"generation": {"source": "None"}}})["ok"]
