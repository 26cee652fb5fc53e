"""Tests of flags of `vllm serve`: accepted without effect, supported, or rejected."""

import json
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer import BadParameter

from penstock_engine.options.command_line import translate_vllm_args
from penstock_engine.options.flag_values import count
from penstock_engine.options.lora_modules import LoraModule, read_lora_modules
from penstock_engine.options.serve_options import ServeOptions
from penstock_engine.text.template import loops_over_content

PARTS = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
LOOP = "{% for m in messages %}{% for part in m.content %}<{{ part.text }}>{% endfor %}{% endfor %}"
WHOLE = "{% for m in messages %}{{ m.content }}{% endfor %}"


@pytest.mark.parametrize(
    "written",
    [
        "--runner generate", "--runner=pooling", "--task embed", "--convert auto",
        "--no-trust-remote-code", "--trust-remote-code=false", "--trust_remote_code=false",
        '--limit-mm-per-prompt {"image":0,"video":{"count":0}}', "--limit-mm-per-prompt={}",
        "--enable-server-load-tracking", "--structured-outputs-config.backend xgrammar",
        '--structured-outputs-config={"backend":"auto"}', "--guided-decoding-backend guidance",
        "--load-format safetensors", "-dp 1", "--enable-chunked-prefill=true",
        "--disable-access-log-for-endpoints /health,/metrics", "--kv-transfer-config {}",
        "--swap-space 0", "--response-role assistant", "--language-model-only",
    ],
)  # fmt: skip
def test_flags_without_effect_are_dropped(written: str) -> None:
    assert translate_vllm_args(["serve", "m", *written.split(), "--port", "1"]) == [
        "serve", "m", "--port", "1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("--runner draft", "--runner draft: .* use auto"),
        ("--trust-remote-code", "--trust-remote-code: code .* is never run"),
        ("--trust-remote-code=true", "--trust-remote-code: code .* is never run"),
        ('--limit-mm-per-prompt {"image":2}', "reads only text"),
        ("--limit-mm-per-prompt image=0", "reads only text"),
        ("--structured-outputs-config.backend outlines", "use one of auto, guidance, xgrammar"),
        ('--structured-outputs-config {"disable_any_whitespace":true}', "use one of auto"),
        ("--no-enable-chunked-prefill", "raise that for fewer of them"),
        ("--enable-chunked-prefill=2", "takes no value"),
        ("--language-model-only=false", "takes no value"),
        ("--load-format dummy", "convert the model"),
        ("--load-format", "needs a value"),
        ("--data-parallel-size 2", "behind a gateway"),
        ('--kv-transfer-config {"kv_connector":"X"}', "--kv-offloading-size"),
        ("--revision main", "models are not downloaded"),
    ],
)
def test_unsupported_flags_are_rejected_with_a_reason(written: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        translate_vllm_args(["serve", "m", *written.split()])


@pytest.mark.parametrize(
    "flag", ["hf-overrides", "limit-mm-per-prompt", "structured-outputs-config"]
)
def test_deeply_nested_values_are_rejected(flag: str) -> None:
    with pytest.raises(ValueError, match=f"--{flag}"):
        translate_vllm_args(["serve", "m", f"--{flag}", '{"a":' * 100_000])


@pytest.mark.parametrize(("text", "number"), [("512", 512), ("8k", 8000), ("1.5K", 1536), (3, 3)])
def test_counts_may_have_a_unit(text: str | int, number: int) -> None:
    assert count(text) == number


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "k", "infk", "4q"])
def test_invalid_counts_are_rejected(text: str) -> None:
    with pytest.raises(BadParameter):
        count(text)


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        ("a=/x=y", [LoraModule("a", "/x=y")]),
        ('{"name": "a", "path": "/x"}', [LoraModule("a", "/x")]),
        ('[{"name": "a", "path": "/x", "base_model_name": "m"}]', [LoraModule("a", "/x", "m")]),
    ],
)
def test_lora_modules_are_parsed(text: str, modules: list[LoraModule]) -> None:
    assert read_lora_modules(text) == modules


@pytest.mark.parametrize(
    "text",
    ["a", "a=", "=b", "{", "[1]", '{"name": "a"}', '{"name": 1, "path": "b"}', "[" * 100_000],
)
def test_invalid_lora_modules_are_rejected(text: str) -> None:
    with pytest.raises(BadParameter, match="--lora-modules"):
        ServeOptions(lora_modules=[text])


def test_lists_and_objects_of_a_file_are_flags_with_json(tmp_path: Path) -> None:
    file = tmp_path / "engine.yaml"
    module = {"name": "a", "path": "/x"}
    file.write_text(json.dumps({"lora-modules": [module], "trust-remote-code": False}))
    words = translate_vllm_args(["serve", "m", "--config", str(file)])
    assert words == ["serve", "m", "--lora-modules", json.dumps(module)]


@pytest.mark.parametrize(
    ("template", "loops"),
    [
        (LOOP, True),
        ("{% for m in messages %}{% for part in m['content'] %}{% endfor %}{% endfor %}", True),
        ("{% set c = messages[0].content %}{% for part in c %}{% endfor %}", True),
        (WHOLE, False),
        ("{% for m in messages %}{{ m.content.split('x')[0] }}{% endfor %}", False),
        ("{% for", False),
    ],
)
def test_loops_over_content_detects_templates_that_read_parts(template: str, loops: bool) -> None:
    assert loops_over_content(template) is loops


@pytest.fixture(scope="module")
def deployed(
    launch: Any, model_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> httpx.Client:
    """A client of an engine whose tokenizer and chat template are in another folder."""
    folder = tmp_path_factory.mktemp("tokenizer")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(model_dir / name, folder / name)
    (folder / "chat_template.jinja").write_text(LOOP + "{{ tone }}")
    client: httpx.Client
    client, _ = launch(
        "--max-model-len", "512", "--tokenizer", str(folder), "--enable-tokenizer-info-endpoint",
        "--default-chat-template-kwargs", '{"tone": "dry"}', "--max-num-batched-tokens", "1k",
        "--runner", "generate", "--structured-outputs-config.backend", "auto",
    )  # fmt: skip
    return client


def prompt(client: httpx.Client, content: Any, **body: Any) -> str:
    """Returns the text of the prompt of a chat with one message."""
    chat = {"messages": [{"role": "user", "content": content}]} | body
    answer = client.post("/tokenize", json=chat)
    assert answer.status_code == 200, answer.text
    text: str = client.post("/detokenize", json={"tokens": answer.json()["tokens"]}).json()[
        "prompt"
    ]
    return text


def test_a_template_that_loops_over_content_gets_parts(deployed: httpx.Client) -> None:
    assert prompt(deployed, PARTS) == "<one><two>dry"
    assert prompt(deployed, "one") == "<one>dry"
    assert deployed.post("/v1/chat/completions", json={
        "messages": [{"role": "user", "content": PARTS}], "max_tokens": 1,
    }).status_code == 200  # fmt: skip


def test_variables_of_a_request_override_the_defaults(deployed: httpx.Client) -> None:
    assert prompt(deployed, "one", chat_template_kwargs={"tone": "wet"}) == "<one>wet"


def test_tokenizer_info_needs_the_flag(deployed: httpx.Client, client: httpx.Client) -> None:
    info = deployed.get("/tokenizer_info")
    assert info.status_code == 200
    assert info.json()["tokenizer_class"]
    assert info.json()["chat_template"] == LOOP + "{{ tone }}"
    assert not [name for name in info.json() if name.endswith("_file")]
    assert "/tokenizer_info" in deployed.get("/openapi.json").json()["paths"]
    assert client.get("/tokenizer_info").status_code == 404


def test_the_content_format_flag_decides_what_a_template_gets(launch: Any) -> None:
    client, _ = launch(
        "--chat-template", WHOLE, "--chat-template-content-format", "openai",
        "--max-model-len", "512",
    )  # fmt: skip
    assert "'text': 'one'" in prompt(client, "one")


def test_the_flag_hides_tools_from_the_template_if_tool_choice_is_none(launch: Any) -> None:
    template = "{{ tools | length if tools else 0 }} tools"
    client, _ = launch(
        "--chat-template", template, "--exclude-tools-when-tool-choice-none",
        "--max-model-len", "512",
    )  # fmt: skip
    tools = [{"type": "function", "function": {"name": "look"}}]
    assert prompt(client, "one", tools=tools) == "1 tools"
    assert prompt(client, "one", tools=tools, tool_choice="none") == "0 tools"


def test_parts_become_lines_of_one_text(launch: Any) -> None:
    client, _ = launch("--chat-template", WHOLE, "--max-model-len", "512")
    assert prompt(client, PARTS) == "one\ntwo"
