"""The page `packages.md`: packages by layer, from import contracts and docstrings."""

import ast
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HEADER = """\
# Packages

A package imports only from packages further down in its table. Packages of one row do not import each
other. Generated from the import-linter contracts in `pyproject.toml` and from docstrings by `penstock docs`;
do not edit.
"""


def page() -> str:
    """The page as Markdown. Raises FileNotFoundError outside of a clone, as a wheel has no pyproject.toml."""
    contracts = tomllib.loads((_folder("penstock").parents[1] / "pyproject.toml").read_text())
    tables = [
        _table(contract["containers"][0], contract["layers"])
        for contract in contracts["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers"
    ]
    return HEADER + "".join(tables)


def _table(container: str, layers: list[str]) -> str:
    rows = [
        "<br>".join(f"`{name}`: {_subject(f'{container}.{name}')}" for name in _names(layer))
        for layer in layers
    ]
    path = _folder(container).relative_to(_folder("penstock").parents[1])
    text = "\n".join(f"| {row} |" for row in rows)
    return f"\n## {path}\n\n{_subject(container)}\n\n| packages |\n| --- |\n{text}\n"


def _names(layer: str) -> list[str]:
    return [name.strip(" ()") for name in layer.replace(":", "|").split("|")]


def _subject(dotted: str) -> str:
    """First paragraph of the docstring of a package or module, which is not imported."""
    path = _folder(dotted)
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    docstring = ast.get_docstring(ast.parse(source.read_text())) or ""
    return " ".join(docstring.split("\n\n")[0].split()).replace("|", "\\|")


def _folder(dotted: str) -> Path:
    root, *rest = dotted.split(".")
    spec: Any = find_spec(root)
    return Path(spec.submodule_search_locations[0], *rest)
