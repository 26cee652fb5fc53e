"""Refuses words that this project once used for things that the field has a word for, and British spelling.

    python tests/architecture/retired_words.py

Prose is read in documents, configuration, docstrings and comments; names are those of modules, classes and
functions. `make lint` runs it. To allow a word in one place, add the place to EXCEPTIONS, with the reason.
"""

import ast
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("operator", "engine", "benchmarks", "tests", "e2e", "docs")

# Regular expressions, in any case -> what to say.
PROSE = {
    r"what (came|comes|has come|became|becomes) of": "outcome, result",
    r"way back": "rollback",
    r"whoever": "the one meant: the client, the caller, the user",
    r"by and by": "gradually",
    r"of late(?! (requests|work))": "recently",
    r"thence": "from there",
    r"hindsight": "counterfactual",
    r"habits?": "recurring bursts",
    r"pasts": "baseline error counts",
    r"seats?": "slot",
    r"(a|every|own|two|which) rooms?|rooms? of tests|rooms(?=,)": "package, folder",
    r"(waits?|waiting|stands?|standing) in (a |the )?line": "admission queue",
    r"(behavi|col|fav|neighb)our\w*|licence|learnt|organisation": "the American spelling",
    r"\w*(initial|normal|optim|quant|random|serial|stabil|summar|util)is(ed?|ers?|ing|ations?)": (
        "the American spelling"
    ),
}
# Modules and classes by their whole name, in any case and without underscores before it -> what it is.
NAMES = {
    **dict.fromkeys(
        (
            "asked",
            "awaited",
            "given",
            "kept",
            "known",
            "made",
            "measured",
            "obeyed",
            "seen",
            "taken",
            "told",
        ),
        "the data that it holds",
    ),
    "account": "statistics of a service",
    "accounts": "statistics of services",
    "drawing": "snapshot",
    "exchange": "proxied request",
    "guard": "cancellation scope",
    "habit": "recurring bursts",
    "hindsight": "counterfactual",
    "line": "admission queue",
    "lines": "admission queues",
    "look": "scrape, poll, tick",
    "pace": "prefill throughput",
    "past": "error baseline",
    "pasts": "error baselines",
    "patience": "scale-up delay",
    "picture": "snapshot",
    "plain": "serialization",
    "relief": "gain",
    "seat": "slot",
    "silence": "idle gap",
    "surprise": "forecast error",
    "tally": "counts",
    "ticket": "request record",
    "unreadable": "decode error",
    "worth": "gain",
}
# Functions outside of tests, by their whole name without underscores before it -> what to name them after.
FUNCTIONS = dict.fromkeys(
    (
        "awaited", "began", "beside", "came", "fewer", "later", "looked", "mix_of", "notable", "obeyed",
        "since", "stale", "told",
    ),
    "what it computes, with a verb",
)  # fmt: skip
# A file without a match has none of them: to parse every file takes ten times as long.
SUSPECT = re.compile(
    rf"\b({'|'.join(PROSE)})\b|(class|def) _*({'|'.join([*NAMES, *FUNCTIONS])})\b".replace(
        " ", r"\s+"
    ),
    re.IGNORECASE,
)
# Place -> why its words stay. A folder covers all below it.
EXCEPTIONS = {
    "tests/architecture/retired_words.py": "the list itself",
}


def main() -> int:
    found = [hit for path in files() if not is_excepted(path) for hit in hits(path)]
    for path, line, word, instead in found:
        print(f"{path.relative_to(ROOT)}:{line}: {word!r}: say {instead}")
    return 1 if found else 0


def files() -> Iterator[Path]:
    yield from sorted([*ROOT.glob("*.md"), *ROOT.glob("*.toml"), *ROOT.glob("Makefile")])
    for folder in FOLDERS:
        yield from sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in {".py", ".md"})


def is_excepted(path: Path) -> bool:
    place = path.relative_to(ROOT).as_posix()
    return any(place == key or place.startswith(f"{key}/") for key in EXCEPTIONS)


def hits(path: Path) -> Iterator[tuple[Path, int, str, str]]:
    """Yields (path, line, word, what to say instead)."""
    text, is_test = path.read_text(), path.relative_to(ROOT).parts[0] in ("tests", "e2e")
    if path.suffix != ".py":
        yield from ((path, *hit) for hit in in_prose(text, 1))
        return
    if path.stem in NAMES:
        yield path, 1, path.stem, NAMES[path.stem]
    if not SUSPECT.search(text):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from ((path, *hit) for hit in in_definition(node, is_test=is_test))
    with path.open("rb") as source:
        for token in tokenize.tokenize(source.readline):
            if token.type == tokenize.COMMENT:
                yield from ((path, *hit) for hit in in_prose(token.string, token.start[0]))


def in_definition(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, *, is_test: bool
) -> Iterator[tuple[int, str, str]]:
    """Yields (line, word, what to say instead) for the name and the docstring."""
    if docstring := ast.get_docstring(node, clean=False):
        yield from in_prose(docstring, node.body[0].lineno)
    if isinstance(node, ast.Module):
        return
    name = node.name.lstrip("_")
    if isinstance(node, ast.ClassDef) and name.lower() in NAMES:
        yield node.lineno, name, NAMES[name.lower()]
    if not isinstance(node, ast.ClassDef) and not is_test and name in FUNCTIONS:
        yield node.lineno, name, FUNCTIONS[name]


def in_prose(text: str, first_line: int) -> Iterator[tuple[int, str, str]]:
    for pattern, instead in PROSE.items():
        spaced = pattern.replace(" ", r"\s+")
        for match in re.finditer(rf"\b({spaced})\b", text, re.IGNORECASE):
            yield first_line + text.count("\n", 0, match.start()), match.group(), instead


if __name__ == "__main__":
    sys.exit(main())
