"""Fields of log lines in the code are those of the reference page."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.observability import logs
from penstock_engine.contract import log_fields

ROOT = Path(__file__).parents[2]
# Fields by the line's message and by the part of the tree that writes it.
DOCUMENTED = {
    ("penstock", "reconciled"): logs.RECONCILE,
    ("penstock", "decided"): logs.DECISION,
    ("penstock", "judged"): logs.VERDICT,
    ("penstock", "request"): logs.ACCESS,
    ("penstock", "connection refused"): logs.REFUSAL,
    ("penstock", "batch changed"): logs.BATCH_CHANGE,
    ("penstock_engine", "request"): log_fields.REQUEST,
    ("penstock_engine", "request failed"): log_fields.FAILURE,
}
# Fields of warnings and errors, whose messages differ.
OTHERS = {"service", "loop", "request_id"}


def lines() -> Iterator[tuple[str, str, set[str]]]:
    """The package, the message and the field names of each log call with fields."""
    for source in (ROOT / "operator", ROOT / "engine"):
        for path in sorted(source.rglob("*.py")):
            package, text = path.relative_to(source).parts[0], path.read_text()
            if "extra=" not in text:
                continue  # each worker of a run reads all files
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call):
                    yield from ((package, *line) for line in _line(node))


def _line(call: ast.Call) -> Iterator[tuple[str, set[str]]]:
    extra = next((each.value for each in call.keywords if each.arg == "extra"), None)
    if not isinstance(extra, ast.Call) or not isinstance(call.args[0], ast.Constant):
        return
    assert isinstance(extra.func, ast.Name)
    names = {each.arg for each in extra.keywords if each.arg is not None}
    yield (
        str(call.args[0].value),
        names | ({"service"} if extra.func.id == "service_fields" else set()),
    )


@pytest.fixture(scope="module")
def written() -> list[tuple[str, str, set[str]]]:
    return list(lines())


def test_every_documented_line_exists(written: list[tuple[str, str, set[str]]]) -> None:
    assert DOCUMENTED.keys() <= {(package, message) for package, message, _ in written}


def test_fields_are_documented(written: list[tuple[str, str, set[str]]]) -> None:
    undocumented = {
        (package, message): names - others
        for package, message, names in written
        if names - (others := {*DOCUMENTED.get((package, message), OTHERS)})
    }
    assert undocumented == {}
