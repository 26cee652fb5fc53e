"""Links, paths and commands of documents name files and sections that exist."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.documentation.code_blocks import read_blocks

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/**/*.md")]
)
HISTORY = ROOT / "CHANGELOG.md"  # names files of the versions that it tells of
BASELINES = ROOT / "operator/penstock/sim/baselines"  # cite documents of other projects
ANCHOR = re.compile(r"\]\(([^)#:\s]*)#([^)\s]+)\)")
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
FOLDERS = "benchmarks|charts|crds|docs|e2e|engine|examples|operator|requirements|tests"
PATH = re.compile(rf"(?<![\w./-])(?:{FOLDERS})/[\w./-]*\w")


def named_paths(document: Path) -> Iterator[Path]:
    text = document.read_text()
    for target in LINK.findall(text):
        yield document.parent / target
    if document != HISTORY:
        yield from (ROOT / path for path in PATH.findall(text))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_that_a_document_names_exists(document: Path) -> None:
    missing = sorted({str(path) for path in named_paths(document) if not path.exists()})
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_section_that_a_link_names_exists(document: Path) -> None:
    links = ANCHOR.findall(document.read_text())
    targets = [(document.parent / name if name else document, anchor) for name, anchor in links]
    missing = [anchor for page, anchor in targets if anchor not in anchors_of(page)]
    assert missing == []


def anchors_of(page: Path) -> set[str]:
    """Anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_blocks_of_code_name_their_language(document: Path) -> None:
    read_blocks(document.read_text())  # raises UnclearPage


def test_results_fit_on_a_screen() -> None:
    pages = {
        page.name: len(page.read_text().splitlines())
        for page in ROOT.glob("benchmarks/results/*.md")
    }
    assert {name: lines for name, lines in pages.items() if lines > 60} == {}


def test_every_page_that_code_names_exists() -> None:
    page = re.compile(r"(?<![\w./-])(?:docs|benchmarks|results)/[\w./-]*\.md\b")
    code = [
        *ROOT.glob("Makefile"),
        *(p for f in FOLDERS.split("|") for p in (ROOT / f).rglob("*.py")),
    ]
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in code
        if not path.is_relative_to(BASELINES)
        for name in page.findall(path.read_text())
        if not (ROOT / name).exists() and not (ROOT / "benchmarks" / name).exists()
    ]
    assert missing == []
