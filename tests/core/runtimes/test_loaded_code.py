"""Arguments with which vLLM would load code: refused, in every spelling."""

from dataclasses import replace

import pytest
from tests.support.specs.service_spec import SMALL

from penstock.core.runtimes.refusals import refused_settings


def refusals(args: tuple[str, ...]) -> list[str]:
    settings = {"runtime.type": "VLLM", "engine.extraArgs": args}
    return list(refused_settings(replace(SMALL, settings=settings)))


CODE = "evil.module.Class"
MODULE = '{"kv_connector": "X", "kv_connector_module_path": "evil"}'
NESTED = '{"kv_connector_extra_config": {"connectors": [{"kv_connector_module_path": "evil"}]}}'


@pytest.mark.parametrize(
    "args",
    [
        (f"--worker-cls={CODE}",),
        ("--worker_extension_cls", CODE),
        ("--middleware", CODE),
        ("--middlew", CODE),
        ("--logits-processors", CODE),
        ("--scheduler-cls", CODE),
        ('--model-class-overrides={"X": "evil:X"}',),
        ("--model-class-overrides.X=evil:X",),
        ("--io-processor-plugin=x",),
        ("--tool-parser-plugin=/models/x.py",),
        ("--reasoning-parser-plugin=/models/x.py",),
        ("--trust-remote-code",),
        ("--code-revision=x",),
        ("--log-config-file=/models/x.json",),
        (f"--distributed-executor-backend={CODE}",),
        # Keys within JSON, also with an escaped letter.
        (f"--kv-transfer-config={MODULE}",),
        ("--kv-transfer-config", MODULE),
        ("--kv-transfer", NESTED),
        ("--kv-transfer-config.kv_connector_module_path=evil",),
        ("--kv_transfer_config.kv_connector_extra_config", '{"spec_module_path": "evil"}'),
        ('--kv-transfer-config={"kv_connector_module_pat\\u0068": "evil"}',),
        ('--ec-transfer-config={"ec_connector_module_path": "evil"}',),
        ("--ec-manager-config.encoder_cache_manager_cls=evil.X",),
        ("--structured-outputs-config.reasoning_parser_plugin=/models/x.py",),
        ("--logging-config.pylogging_config_file=/models/x.json",),
        ('--mm-processor-kwargs={"trust_remote_code": true}',),
        (f"-cc.backend={CODE}",),
        ("-cc", '{"inductor_passes": {"post_grad_custom_post_pass": "evil.f"}}'),
        ('--compilation-config={"backend": "evil.backend"}',),
        # A variable of the pod could hold such a key.
        ("--kv-transfer-config=$(CONFIG)",),
        ("--kv-transf", "x$(CONFIG)"),
        ('-cc={"$(KEY)": {}}',),
    ],
    ids=" ".join,
)
def test_vllm_loads_no_code_by_name(args: tuple[str, ...]) -> None:
    sentences = refusals(args)
    words = ("spec.runtime.type to Custom", "without a variable", "processes of its pod")
    assert any(word in sentence for sentence in sentences for word in words), sentences


@pytest.mark.parametrize(
    "args",
    [
        ('--kv-transfer-config={"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}',),
        ("--structured-outputs-config.backend=xgrammar",),
        ("-cc.backend=inductor",),
        ('--hf-overrides={"rope_theta": 10000.5}',),
        ("--model-impl=transformers",),
        ("--load-format", "runai_streamer"),
    ],
    ids=" ".join,
)
def test_vllms_own_implementations_can_be_chosen(args: tuple[str, ...]) -> None:
    assert refusals(args) == []
