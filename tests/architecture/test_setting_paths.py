"""Paths of engine settings are written out where they are used: each must be one that the spec has."""

import ast
import re
import runpy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from penstock.api.conversion import settings
from penstock.api.conversion.settings import SETTINGS, check_settings
from penstock.core.runtimes import penstock, vllm
from penstock.core.runtimes.runtime import option
from penstock.core.spec import fields
from penstock.core.spec.fields import OTHER_FIELDS, REVISION_FIELDS

ROOT = Path(__file__).parents[2]
PACKAGES = [ROOT / "operator/penstock" / name for name in ("api", "controller", "core")]
PATH = re.compile(r"(?:engine|runtime|tracing)(?:\.[a-zA-Z]+)+")
IN_TEXT = re.compile(r"\bspec\.((?:engine|runtime|tracing)(?:\.[a-zA-Z]+)+)")

KNOWN = {field.path for field in REVISION_FIELDS} | {*SETTINGS, *OTHER_FIELDS}
# Each section of the spec too, such as engine.kvCache: texts name them.
SECTIONS = {path.rsplit(".", depth)[0] for path in KNOWN for depth in range(path.count(".") + 1)}


def strings() -> Iterator[tuple[Path, str]]:
    for file in (each for package in PACKAGES for each in sorted(package.rglob("*.py"))):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield file.relative_to(ROOT), node.value


def test_a_string_that_looks_like_the_path_of_a_setting_is_one() -> None:
    paths = [(file, text) for file, text in strings() if PATH.fullmatch(text)]

    assert len(paths) > 100
    assert [each for each in paths if each[1] not in KNOWN] == []


def test_texts_name_fields_that_the_spec_has() -> None:
    named = [(file, path) for file, text in strings() for path in IN_TEXT.findall(text)]

    assert len(named) > 30
    assert [each for each in named if each[1] not in SECTIONS] == []


@pytest.mark.parametrize("runtime", [penstock, vllm])
def test_an_argument_of_an_unknown_setting_is_refused_at_import(
    runtime: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = (*runtime.RUNTIME.arguments, option("engine.maxSeqs", "--max-num-seqs"))
    monkeypatch.setattr(runtime, "RUNTIME", replace(runtime.RUNTIME, arguments=arguments))
    with pytest.raises(ValueError, match=r"engine\.maxSeqs: the schema has no such setting"):
        runpy.run_path(str(settings.__file__))


def test_the_default_of_an_unknown_setting_is_refused_at_import(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fields, "FROZEN_DEFAULTS", {**fields.FROZEN_DEFAULTS, "engine.sead": 1})
    with pytest.raises(ValueError, match=r"engine\.sead: the schema has no such setting"):
        runpy.run_path(str(settings.__file__))


def test_settings_are_checked_by_path() -> None:
    check_settings(["engine.seed", "runtime.type", "tracing.sampler"])
    with pytest.raises(ValueError, match=r"model\.uri: the schema has no such setting"):
        check_settings(["engine.seed", "model.uri"])
