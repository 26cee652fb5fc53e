"""README and docs say what works: their commands are run, and the API server takes their YAML."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e.documentation.code_blocks import CodeBlock, read_blocks
from e2e.documentation.page_session import PageSession

from penstock.chart.values import values
from penstock.clients.machine.caches import cache_root
from penstock.local import chat_model
from penstock.local.binaries import ensure_binaries

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md"))]
# Cache folders that the pages share with the user, because they are slow to build.
SHARED_CACHES = ("bin", "compiled")
ON_PATH = 'export PATH="$PWD/.venv/bin:$PATH"\n'
FRACTION = re.compile(r"\d+\.\d+")
MACHINES_DIFFER_BY = 0.001  # of log-probabilities in float32
NEEDS_CLUSTER = re.compile(r"\b(kubectl|penstock (explain|record|rollout))\b")
CLUSTER = """\
penstock local up
eval "$(penstock local env)"
"""
CHAT = """\
kubectl delete psvc chat --ignore-not-found
kubectl apply -f examples/quickstart.yaml
kubectl wait --for=condition=Ready psvc/chat --timeout=3m
"""
CHART_VALUES = values.complete({}).keys()
SMALLEST: dict[str, Any] = {
    "apiVersion": "serving.penstock.dev/v1alpha1",
    "kind": "InferenceService",
    "metadata": {"name": "fragment"},
    "spec": {"model": {"uri": "pvc://models/any"}},
}

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.node_agent("pages start the cluster that `penstock local up` starts by default"),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home folder with clusters and models of its own, which go with it, and the user's binaries."""
    ensure_binaries(print)
    model = chat_model.ensure_chat_model(print)
    home = tmp_path_factory.mktemp("home")
    cache = home / ".cache" / "penstock"
    cache.mkdir(parents=True)
    for name in SHARED_CACHES:
        (cache_root() / name).mkdir(exist_ok=True)
        (cache / name).symlink_to(cache_root() / name)
    models = cache / "local-models"  # a folder of its own: pages put adapters beside the model
    shutil.copytree(model, models / model.name, copy_function=link_or_copy)
    yield home
    ended = PageSession("end", ROOT, home)
    ended.setup(f"{Path(sys.executable).parent}/penstock local down --all")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree to work in, with the environment that `make install` makes."""
    tree = tmp_path_factory.mktemp("tree") / "penstock"
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in listing.stdout.splitlines():
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    (tree / ".venv").symlink_to(sys.prefix)
    return tree


@pytest.fixture(scope="module")
def answers_are_known() -> bool:
    """Whether the model is the one that the pages' answers are of: the package's, not the hub's."""
    weights = chat_model.ensure_chat_model(print) / "model.safetensors"
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    return digest != chat_model.HUB_FILES[weights.name]


@pytest.mark.parametrize("page", PAGES)
def test_commands_run(page: str, tree: Path, home: Path, answers_are_known: bool) -> None:
    blocks = read_blocks((ROOT / page).read_text())
    if not any(_is_command(block) for block in blocks):
        return
    session = PageSession(page, tree, home)
    try:
        session.setup(_setup(page, blocks))
        printed: str | None = None
        for block in blocks:
            if _is_command(block):
                printed = session.run(block)
                continue
            is_output = block.language == "text" and block.follows_directly
            if printed is not None and is_output and answers_are_known:
                assert _comparable(printed) == _comparable(block.text), f"{page}:{block.line}"
                numbers = pytest.approx(_numbers(block.text), abs=MACHINES_DIFFER_BY)
                assert _numbers(printed) == numbers, f"{page}:{block.line}"
            printed = None
    finally:
        session.close()


@pytest.mark.parametrize("page", PAGES)
def test_yaml_is_accepted(page: str, tree: Path, home: Path) -> None:
    documents = [
        document
        for block in read_blocks((ROOT / page).read_text())
        if block.language == "yaml" and block.is_run
        for document in yaml.safe_load_all(block.text)
    ]
    for document in documents:
        if document.keys() <= CHART_VALUES:
            values.complete(document)  # raises InvalidValues
    manifests = [_manifest(each) for each in documents if not each.keys() <= CHART_VALUES]
    if not manifests:
        return
    (tree / "manifests.yaml").write_text(yaml.safe_dump_all(manifests))
    session = PageSession(f"yaml-{page}", tree, home)
    session.setup(f"{ON_PATH}{CLUSTER}kubectl apply --dry-run=server -f manifests.yaml")


def link_or_copy(source: str, target: str) -> None:
    """Link a file of the user's cache, or copy it to another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _is_command(block: CodeBlock) -> bool:
    return block.is_run and block.language != "yaml"


def _setup(page: str, blocks: list[CodeBlock]) -> str:
    """Return the commands that the page expects to have been run.

    The README expects none: `penstock local up` fetches the model.
    """
    if page == "README.md":
        return ".venv/bin/penstock local down\nrm -r ~/.cache/penstock/local-models\n"
    commands = "".join(block.text for block in blocks if _is_command(block))
    cluster = CLUSTER if NEEDS_CLUSTER.search(commands) else ""
    chat = CHAT if cluster and re.search(r"\bchat\b", commands) else ""
    return ON_PATH + cluster + chat


def _manifest(document: dict[str, Any]) -> dict[str, Any]:
    """The document; a fragment of an InferenceService's spec as a whole one."""
    if "apiVersion" in document:
        return document
    assert set(document) == {"spec"}, f"a fragment has to begin with spec: {document}"
    return SMALLEST | {"spec": SMALLEST["spec"] | document["spec"]}


def _comparable(output: str) -> str:
    """Output without what differs from run to run or from machine to machine: ids, times and fractions."""
    text = re.sub(r'"(id)":"[^"]*"|"(created)":\d+', r"\1\2", output)
    return FRACTION.sub("FRACTION", text).strip()


def _numbers(output: str) -> list[float]:
    return [float(each) for each in FRACTION.findall(output)]
