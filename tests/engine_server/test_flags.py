"""Tests of flags: vLLM's spelling, and their effect on a running engine."""

import asyncio
import json
import ssl
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from typer import BadParameter

from penstock_engine.core.step import SequenceOutput, Step
from penstock_engine.options.command_line import translate_vllm_args
from penstock_engine.options.flag_values import FIT, context_length, json_object, json_texts
from penstock_engine.options.serve_options import ServeOptions

COMMAND = Path(sys.executable).with_name("penstock-engine")
SHORT = {"prompt": "The engine", "max_tokens": 2}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("serve m --port 1", "serve m --port 1"),
        ("--max_model_len 5 --a_b=c_d", "--max-model-len 5 --a-b=c_d"),
        ("--api-key a b --port 1", "--api-key a --api-key b --port 1"),
        ("--api_key a --api-key=b c", "--api-key a --api-key=b --api-key c"),
        ("--lora-modules a=b c=d", "--lora-modules a=b --lora-modules c=d"),
        ("m --served-model-name x y", "m --served-model-name x --served-model-name y"),
        ("--uds /tmp/a_b --seed -1", "--uds /tmp/a_b --seed -1"),
        ("m -tp 2 -q int8", "m --tensor-parallel-size 2 --quantization int8"),
        ("m --enable_chunked_prefill --port 1", "m --port 1"),
        ("m --load-format auto --tokenizer-mode=hf x", "m x"),
        ("serve --model m --port 1", "serve m --port 1"),
        ("m --disable-log-requests", "m --no-enable-log-requests"),
        (
            "m --dtype half --tool-call-parser=granite4",
            "m --dtype float16 --tool-call-parser=hermes",
        ),
    ],
)
def test_flags_are_parsed_like_vllms(written: str, expected: str) -> None:
    assert translate_vllm_args(written.split()) == expected.split()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--enable-lora"], "the first argument has to be a command, such as serve"),
        (["serve", "m", "--lora-modules", "a=b"], "--lora-modules needs --enable-lora"),
    ],
)
def test_a_command_line_that_lacks_something_is_rejected_with_advice(
    words: list[str], message: str
) -> None:
    done = subprocess.run([COMMAND, *words], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert message in done.stderr


def test_flags_on_the_command_line_override_those_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "engine.yaml"
    file.write_text(
        "model: m\nport: 1\nenable_lora: true\nenable-prefix-caching: false\napi-key: [a, b]\n"
        "override-generation-config: {temperature: 0}\ndtype: auto\nload-format: auto\n"
    )
    expected = [
        "serve", "m", "--port=1", "--enable-lora", "--no-enable-prefix-caching",
        "--api-key", "a", "--api-key", "b", '--override-generation-config={"temperature": 0}',
        "--dtype=auto", "--port", "2",
    ]  # fmt: skip
    assert translate_vllm_args(["serve", "--port", "2", "--config", str(file)]) == expected
    assert translate_vllm_args(["serve", f"--config={file}", "--port", "2"]) == expected


@pytest.mark.parametrize("text", ["[1]", "a: [", "1: 2", None])
def test_an_invalid_flag_file_is_rejected(text: str | None, tmp_path: Path) -> None:
    file = tmp_path / "engine.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ValueError, match=r"--config: .*engine\.yaml"):
        translate_vllm_args(["serve", "m", "--config", str(file)])


@pytest.mark.parametrize(
    ("text", "length"),
    [("auto", FIT), ("-1", FIT), ("4096", 4096), ("4k", 4000), ("4K", 4096), ("1.5K", 1536)],
)
def test_context_lengths(text: str, length: int) -> None:
    assert context_length(text) == length


@pytest.mark.parametrize("text", ["", "k", "1", "-2", "0", "nan", "inf", "1e999", "4q", "four"])
def test_invalid_context_lengths_are_rejected(text: str) -> None:
    with pytest.raises(BadParameter):
        context_length(text)


@pytest.mark.parametrize("text", ["", "{", "[]", "1", '{"a":' * 100_000])
def test_flags_that_need_a_json_object_reject_others(text: str) -> None:
    with pytest.raises(BadParameter):
        json_object(text)


@pytest.mark.parametrize("text", ["", "*", "{}", "[1]", '"*"', "[" * 100_000])
def test_flags_that_need_a_list_of_texts_reject_others(text: str) -> None:
    with pytest.raises(BadParameter):
        json_texts(text)


@pytest.mark.parametrize("wrong", [{"api_keys": ["a", ""]}, {"ssl_keyfile": Path("k")}])
def test_insecure_flags_are_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadParameter):
        ServeOptions(**wrong)


def test_an_unknown_flag_is_an_error() -> None:
    done = subprocess.run(
        [COMMAND, "serve", "m", "--enable-magic"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "No such option" in done.stderr


@pytest.fixture(scope="module")
def client_with_flags(launch: Any, tmp_path_factory: pytest.TempPathFactory) -> httpx.Client:
    template = tmp_path_factory.mktemp("template") / "shout.jinja"
    template.write_text("{% for m in messages %}{{ m.content | upper }}{% endfor %}")
    client: httpx.Client
    client, _ = launch(
        "--max-model-len", "2K", "--served-model-name", "broth", "stock",
        "--api-key", "one", "two", "--root-path", "/engine/", "--allowed-origins", '["http://page"]',
        "--no-enable-request-id-headers", "--enable-force-include-usage",
        "--chat_template", str(template),
        "--override-generation-config", '{"temperature": 0, "max_new_tokens": 7}',
    )  # fmt: skip
    client.headers["authorization"] = "Bearer two"
    return client


def test_all_names_are_accepted_and_answers_have_the_first(client_with_flags: httpx.Client) -> None:
    names = [model["id"] for model in client_with_flags.get("/v1/models").json()["data"]]
    answers = [
        client_with_flags.post("/v1/completions", json=SHORT | {"model": name}) for name in names
    ]
    assert names == ["soup", "broth", "stock"]
    assert [answer.json()["model"] for answer in answers] == ["soup"] * 3


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"authorization": "Bearer one"}, 200),
        ({"authorization": "bearer two"}, 200),
        ({"authorization": "", "x-api-key": "one"}, 200),
        ({"authorization": "Bearer three"}, 401),
        ({"authorization": "Bearer three", "x-api-key": "one"}, 401),
        ({"authorization": "", "x-api-key": "three"}, 401),
        ({"authorization": "Bearer one two"}, 401),
    ],
)
def test_each_of_several_keys_is_accepted(
    client_with_flags: httpx.Client, headers: dict[str, str], status: int
) -> None:
    assert client_with_flags.get("/v1/models", headers=headers).status_code == status


@pytest.mark.parametrize(
    "path", ["/health", "/ready", "/version", "/metrics", "/ping", "/engine/health"]
)
def test_open_paths_need_no_key_under_a_root_path(
    client_with_flags: httpx.Client, path: str
) -> None:
    assert httpx.get(client_with_flags.base_url.join(path)).status_code == 200


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/openapi.json"])
def test_paths_with_and_without_the_root_path_are_equal(
    client_with_flags: httpx.Client, path: str
) -> None:
    plain, prefixed = client_with_flags.get(path), client_with_flags.get(f"/engine{path}")
    assert (plain.status_code, prefixed.status_code) == (200, 200)
    assert plain.content == prefixed.content


@pytest.mark.parametrize("path", ["/engine/v1/models", "/enginehealth", "/engine/engine/health"])
def test_other_paths_need_a_key_under_a_root_path(
    client_with_flags: httpx.Client, path: str
) -> None:
    assert httpx.get(client_with_flags.base_url.join(path)).status_code == 401


def test_the_root_path_is_removed_once_only(client_with_flags: httpx.Client) -> None:
    paths = ("/engine", "/enginehealth", "/engine/engine/health")
    assert [client_with_flags.get(path).status_code for path in paths] == [404] * 3


def test_cors_allows_the_given_origins_only(client_with_flags: httpx.Client) -> None:
    asks = {"origin": "http://page", "access-control-request-method": "POST"}
    allowed = httpx.options(client_with_flags.base_url.join("/v1/completions"), headers=asks)
    forbidden = httpx.options(
        client_with_flags.base_url.join("/v1/completions"),
        headers=asks | {"origin": "http://other"},
    )
    assert allowed.headers["access-control-allow-origin"] == "http://page"
    assert "access-control-allow-origin" not in forbidden.headers


def test_override_generation_config_sets_defaults_and_caps_the_length(
    client_with_flags: httpx.Client,
) -> None:
    """Temperature 0 gives equal answers without a seed; max_new_tokens 7 caps longer answers."""
    body = {"prompt": "The engine", "max_tokens": 50, "ignore_eos": True}
    first, second = (client_with_flags.post("/v1/completions", json=body).json() for _ in range(2))
    hot = client_with_flags.post(
        "/v1/completions", json=body | {"temperature": 100, "seed": 1}
    ).json()
    assert first["choices"] == second["choices"] != hot["choices"]
    assert first["usage"]["completion_tokens"] == 7


def test_usage_has_cached_tokens_only_if_the_api_requires_them(
    client_with_flags: httpx.Client,
) -> None:
    chat = {"messages": [{"role": "user", "content": "Hi."}], "max_tokens": 2}
    plain = client_with_flags.post("/v1/completions", json=SHORT).json()["usage"]
    message = client_with_flags.post("/v1/messages", json=chat).json()["usage"]
    response = client_with_flags.post("/v1/responses", json={"input": "word " * 40}).json()["usage"]
    again = client_with_flags.post("/v1/responses", json={"input": "word " * 40}).json()["usage"]
    invoked = client_with_flags.post("/invocations", json=SHORT).json()["usage"]
    batch = {"messages": [chat["messages"]], "max_tokens": 2}
    batched = client_with_flags.post("/v1/chat/completions/batch", json=batch).json()["usage"]
    assert [u["prompt_tokens_details"] for u in (plain, invoked, batched)] == [None] * 3
    assert message["cache_read_input_tokens"] == 0
    assert response["input_tokens_details"] == {"cached_tokens": 0}
    assert again["input_tokens_details"]["cached_tokens"] > 0


def test_forced_usage_is_in_every_chunk_of_a_stream(client_with_flags: httpx.Client) -> None:
    answer = client_with_flags.post("/v1/completions", json=SHORT | {"stream": True})
    *chunks, done = answer.text.strip().split("\n\n")
    usages = [json.loads(chunk.removeprefix("data: "))["usage"] for chunk in chunks]
    assert done == "data: [DONE]"
    assert usages[-1]["completion_tokens"] == 2
    assert all(usage["prompt_tokens"] == usages[-1]["prompt_tokens"] for usage in usages)
    assert "x-request-id" not in answer.headers


def test_the_chat_template_of_the_flag_is_used(client_with_flags: httpx.Client) -> None:
    messages = [{"role": "user", "content": "the engine"}]
    body = {"messages": messages, "max_tokens": 2}
    chat = client_with_flags.post("/v1/chat/completions", json=body).json()
    plain = client_with_flags.post(
        "/v1/completions",
        json={"prompt": "THE ENGINE", "max_tokens": 2, "add_special_tokens": False},
    ).json()
    assert chat["choices"][0]["message"]["content"] == plain["choices"][0]["text"]
    assert chat["usage"] == plain["usage"]


class EchoRunner:
    """A runner that always samples the same token."""

    def run(self, step: Step) -> dict[str, SequenceOutput]:
        return {sequence.request_id: SequenceOutput((5,)) for sequence in step.sequences}


class BlockedRunner:
    """A runner whose steps block until `may_run` is set."""

    def __init__(self) -> None:
        self.may_run = threading.Event()
        self.is_blocked = threading.Event()

    def run(self, step: Step) -> dict[str, SequenceOutput]:
        self.is_blocked.set()
        self.may_run.wait(30)
        return {sequence.request_id: SequenceOutput((5,)) for sequence in step.sequences}


async def test_queued_prompt_tokens_are_limited(serve_runner: Any) -> None:
    """A prompt above the limit is accepted if the queue is empty, and rejected otherwise."""
    runner = BlockedRunner()
    async with serve_runner(lambda: runner, max_num_queued_tokens=20) as client:

        async def post(num_tokens: int) -> httpx.Response:
            body = {"prompt": [7] * num_tokens, "max_tokens": 2}
            answer: httpx.Response = await client.post("/v1/completions", json=body)
            return answer

        first = asyncio.create_task(post(30))
        await asyncio.to_thread(runner.is_blocked.wait, 30)
        rejected = await post(5)
        runner.may_run.set()
        accepted = await first
        again = [await post(5), await post(20)]
        metrics = (await client.get("/metrics")).text
    assert rejected.headers["retry-after"]
    assert [accepted.status_code, *(answer.status_code for answer in again)] == [200] * 3
    assert 'admission_rejections_total{model_name="small",reason="max_num_queued_tokens"} 1.0' in (
        metrics
    )


@pytest.mark.parametrize(("n", "status"), [(5, 200), (6, 400)])
async def test_one_request_may_have_as_many_choices_as_can_run_and_wait(
    serve_runner: Any, n: int, status: int
) -> None:
    """More choices could never be accepted, so the error is a 400 and not a 503."""
    flags = {"max_num_seqs": 2, "max_num_queued_reqs": 3}
    async with serve_runner(EchoRunner, **flags) as client:
        for body in ({"prompt": [7], "n": n}, {"prompt": [[7]] * n}):
            answer = await client.post("/v1/completions", json=body | {"max_tokens": 2})
            assert answer.status_code == status, answer.text
            if status == 400:
                assert answer.json()["error"]["param"] == "n"
                assert "--max-num-queued-reqs" in answer.json()["error"]["message"]


def certificate(folder: Path) -> tuple[Path, Path]:
    """Writes a self-signed certificate of localhost, and returns the paths of its key and itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "key").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    (folder / "cert").write_bytes(signed.public_bytes(pem))
    return folder / "key", folder / "cert"


def test_tls_on_a_unix_socket_and_a_context_fitted_to_the_cache(
    model_dir: Path, tmp_path: Path
) -> None:
    key, cert = certificate(tmp_path)
    socket, log = tmp_path / "engine.sock", tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [COMMAND, "serve", model_dir, "--uds", socket, "--ssl-keyfile", key,
             "--ssl-certfile", cert, "--max-model-len", "auto", "--num-gpu-blocks-override", "9",
             "--no-enable-log-requests"],
            stdout=output, stderr=output,
        )  # fmt: skip
    try:
        transport = httpx.HTTPTransport(
            uds=str(socket), verify=ssl.create_default_context(cafile=cert)
        )
        deadline_s = time.monotonic() + 90
        while not socket.exists():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline_s, log.read_text()
            time.sleep(0.05)
        with httpx.Client(transport=transport, base_url="https://localhost") as client:
            (model,) = client.get("/v1/models").json()["data"]
            answer = client.post("/v1/completions", json=SHORT)
    finally:
        process.kill()
        process.wait()
    assert (model["id"], model["max_model_len"]) == (model_dir.name, 9 * 16)
    assert answer.status_code == 200
    assert "the context is cut to 144 of the model's" in log.read_text()
    assert "prompt_tokens" not in log.read_text()
