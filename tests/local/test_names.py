"""Commands that take a cluster's name touch only that cluster's folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import build
from penstock.local import cluster as clusters
from penstock.local import record

# Even without the check these would name paths below the test's own folder.
NO_NAMES = [
    "", " ", ".", "..", "...", "{tmp}/home", "/{tmp}/home", "./x", "x/", "../x", "../../x", "../../../etc",
    "a/../b", "a/..", "..\\x", "{tmp}", "~", "~root", "$HOME", "*", "?", "[a]", "-", "-x", "--all", "-rf",
    ".hidden", ".lock", "x.y", "X", "Demo", "a b", "a\n", "demo\n", "\nx", "a\0b", "é", "\uff41", "٣",
    "naïve", "a_b", "a:b", "a" * 64, "a" * 300, "日本", "x\u202ey", "%2e%2e", "demo;ls",
]  # fmt: skip
CHECKOUT = Path(__file__).parents[2]
COMMANDS = {
    "up": ["local", "up", "--bare", "--name"],
    "down": ["local", "down", "--name"],
    "logs": ["local", "logs", "etcd", "--name"],
    "demo": ["demo", f"--root={CHECKOUT}", "--name"],
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The clusters' folder, inside a tree of files that no command may touch."""
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(tmp_path / "a" / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    root = tmp_path / "a" / "cache" / "clusters"
    for folder in (tmp_path, tmp_path / "home", tmp_path / "x", tmp_path / "a", root, root / "x y"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "precious").write_text("kept")
    return root


def tree(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", NO_NAMES)
def test_an_invalid_name_is_refused(command: str, name: str, root: Path, tmp_path: Path) -> None:
    before = tree(tmp_path)
    *words, option = COMMANDS[command]
    given = name.replace("{tmp}", str(tmp_path))
    outcome = CliRunner().invoke(build(words[0]), [*words, f"{option}={given}"])
    assert outcome.exit_code == 1
    assert "not a valid cluster name" in outcome.output
    assert tree(tmp_path) == before


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_name_cannot_be_a_path(name: str, root: Path, tmp_path: Path) -> None:
    before = tree(tmp_path)
    for function in (record.folder_of, record.find, record.get, clusters.down):
        with pytest.raises(clusters.ClusterError, match="not a valid cluster name"):
            function(name.replace("{tmp}", str(tmp_path)))
    with pytest.raises(clusters.ClusterError, match="not a valid cluster name"):
        record.create(name, 99, {})
    assert tree(tmp_path) == before


def test_an_empty_name_is_refused(root: Path, tmp_path: Path) -> None:
    before = tree(tmp_path)
    command = f'{sys.executable} -m penstock local down --name "$NOT_SET"'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, tree(tmp_path)) == (1, before)
    assert "not a valid cluster name" in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", ["folder", "empty", "file", "link", "dangling", "linked record"])
def test_a_folder_that_up_did_not_create_is_left_alone(
    command: str, kind: str, root: Path, tmp_path: Path
) -> None:
    """A folder with a valid cluster name that `up` did not make is not touched."""
    taken = root / "mine"
    cluster = record.create("other", 99, {})
    if kind == "folder":
        taken.mkdir()
        (taken / "precious").write_text("kept")
    elif kind == "empty":
        taken.mkdir()
    elif kind == "file":
        taken.write_text("kept")
    elif kind == "link":
        taken.symlink_to(tmp_path / "home")
    elif kind == "dangling":
        taken.symlink_to(tmp_path / "nowhere")
    else:
        taken.symlink_to(cluster.folder)
    before = tree(tmp_path)
    *words, option = COMMANDS[command]
    outcome = CliRunner().invoke(build(words[0]), [*words, f"{option}=mine"])
    assert outcome.exit_code == 1
    assert "was not created by" in outcome.output
    assert tree(tmp_path) == before
    assert os.path.lexists(taken)


@pytest.mark.usefixtures("root")
def test_the_demo_leaves_an_existing_cluster_alone(tmp_path: Path) -> None:
    record.create("mine", 99, {})
    before = tree(tmp_path)
    outcome = CliRunner().invoke(build("demo"), ["demo", f"--root={CHECKOUT}", "--name=mine"])
    assert outcome.exit_code == 1
    assert "exists already" in outcome.output
    assert tree(tmp_path) == before


def test_a_log_is_named_and_not_found_by_path(root: Path, tmp_path: Path) -> None:
    cluster = record.create("mine", 99, {})
    (cluster.folder / "pods").mkdir()
    cluster.logs.mkdir()
    (cluster.logs / "etcd.log").write_text("its log")
    (tmp_path / "secret.log").write_text("a secret")

    def logs(source: str) -> str:
        return CliRunner().invoke(build("local"), ["local", "logs", source, "--name=mine"]).output

    assert logs("etcd") == "its log"
    for source in ("../../../../../secret", str(tmp_path / "secret"), "../logs/etcd"):
        assert "No component or pod" in logs(source)
        assert "Components: etcd. Pods: " in logs(source)


def test_down_removes_one_cluster(root: Path, tmp_path: Path) -> None:
    before = tree(tmp_path)
    record.create("one", 98, {})
    record.create("two", 99, {})
    assert clusters.down("one")
    assert not clusters.down("one")
    assert [each.name for each in clusters.list_clusters()] == ["two"]
    outcome = CliRunner().invoke(build("local"), ["local", "down", "--all"])
    assert outcome.exit_code == 0
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", '"x"', "{}", '{"name": "bad"}',
        '{"name": "bad", "cluster_id": "", "network": 5, "allocatable": {}}',
        '{"name": "bad", "cluster_id": "0123456789abcdef", "network": 500, "allocatable": {}}',
        '{"name": "other", "cluster_id": "0123456789abcdef", "network": 5, "allocatable": {}}',
        '{"name": "../x", "cluster_id": "0123456789abcdef", "network": 5, "allocatable": {}}',
    ],
)  # fmt: skip
def test_a_damaged_record_harms_no_other_cluster(text: str, root: Path, tmp_path: Path) -> None:
    (root / "bad").mkdir()
    (root / "bad" / "cluster.json").write_text(text)
    record.create("good", 99, {})
    before = tree(tmp_path)
    runner, app = CliRunner(), build("local")
    shown = runner.invoke(app, ["local", "status"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    assert "good" in shown.stdout
    assert "bad/cluster.json" in shown.stderr
    for words in (
        ["down", "--name=bad"],
        ["up", "--bare", "--name=bad"],
        ["logs", "x", "--name=bad"],
    ):
        outcome = runner.invoke(app, ["local", *words])
        assert outcome.exit_code == 1
        assert "bad/cluster.json" in outcome.stderr
    assert tree(tmp_path) == before
    everything = runner.invoke(app, ["local", "down", "--all"])
    assert everything.exit_code == 1
    assert "good is down" in everything.stdout
    assert (root / "bad" / "cluster.json").read_text() == text


def test_a_record_of_a_later_version_is_read(root: Path) -> None:
    made = record.create("new", 99, {"nvidia.com/gpu": "1"})
    path = made.folder / "cluster.json"
    path.write_text(path.read_text().replace("{", '{"flavour": "sweet",', 1))
    assert record.get("new") == made


@pytest.mark.parametrize("given", ["nvidia.com/gpu", "nvidia.com/gpu=", "=8", "gpu=many", "gpu=-1"])
def test_a_resource_without_an_amount_is_refused(given: str, root: Path) -> None:
    words = ["local", "up", "--bare", "--name=mine", f"--allocatable={given}"]
    outcome = CliRunner().invoke(build("local"), words)
    assert outcome.exit_code == 2
    assert "--allocatable" in outcome.output
    assert not (root / "mine").exists()


def test_an_error_with_brackets_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(tmp_path / "[x] [/y]"))
    folder = tmp_path / "[x] [/y]" / "clusters" / "mine"
    folder.mkdir(parents=True)
    outcome = CliRunner().invoke(build("local"), ["local", "down", "--name=mine"])
    assert outcome.exit_code == 1
    assert str(folder) in outcome.output
