"""Sizes of folders, files and functions, and what an `__init__.py` has."""

import ast
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = ("operator", "engine")
# A list of this many modules fits on one screen.
MAX_MODULES = 24
MAX_FILE_LINES = 300
MAX_BODY_LINES = 40
# Functions that already exceeded the limit. Remove an entry once its function fits.
LONG_FUNCTIONS = {
    "engine/penstock_engine/kernels/paged_attention.py: _attend_kernel",
    "engine/penstock_engine/kernels/paged_attention.py: paged_attention",
    "engine/penstock_engine/server/generation/answer_format.py: _with_calls",
    "engine/penstock_engine/server/handlers/preprocessing.py: preprocess",
    "engine/penstock_engine/server/serve.py: serve",
}


def modules(*folders: str) -> list[Path]:
    """Python files below these folders that git tracks, or will."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *folders],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    paths = [Path(name) for name in listing.stdout.splitlines()]
    return [path for path in paths if path.suffix == ".py" and (ROOT / path).is_file()]


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its signature and its docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


def long_functions(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_function and body_lines(node) > MAX_BODY_LINES:
            yield node.name


def test_no_folder_has_more_modules_than_fit_on_a_screen() -> None:
    sizes = Counter(
        path.parent
        for path in modules(*PRODUCT, "tests", "benchmarks", "e2e")
        if path.name != "__init__.py"
    )
    assert {str(folder): n for folder, n in sizes.items() if n > MAX_MODULES} == {}


def test_no_file_of_the_product_is_longer_than_a_few_screens() -> None:
    long = {
        str(path)
        for path in modules(*PRODUCT)
        if len((ROOT / path).read_text().splitlines()) > MAX_FILE_LINES
    }
    assert long == set()


def test_no_function_of_the_product_is_longer_than_a_screen() -> None:
    long = {
        f"{path}: {name}"
        for path in modules(*PRODUCT)
        for name in long_functions((ROOT / path).read_text())
    }
    assert long == LONG_FUNCTIONS


@pytest.mark.parametrize(("lines", "expected"), [(40, []), (41, ["work"])])
def test_signature_and_docstring_do_not_count(lines: int, expected: list[str]) -> None:
    body = "    a = 1\n" * lines
    source = (
        f'async def work(\n    a: int,\n) -> None:\n    """Works.\n\n    Long.\n    """\n{body}'
    )
    assert list(long_functions(source)) == expected


def test_each_package_has_a_docstring_and_nothing_else() -> None:
    wrong = []
    for path in modules(*PRODUCT):
        if path.name == "__init__.py":
            tree = ast.parse((ROOT / path).read_text())
            if ast.get_docstring(tree) is None or len(tree.body) > 1:
                wrong.append(str(path))
    assert wrong == []
