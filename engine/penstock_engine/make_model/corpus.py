"""Training texts: passages of documents, and pairs of question and answer derived from them."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

QUESTIONS = ("What is {}?", "Tell me about {}.", "Explain {}.", "{}?")

DOCSTRING_OWNERS = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Pair:
    """A conversation of one question and its answer."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class Corpus:
    """Training texts. passages: paragraphs of all documents, in reading order."""

    passages: tuple[str, ...]
    pairs: tuple[Pair, ...]


def read_corpus(docs: Sequence[Path]) -> Corpus:
    """Read files, and in directories all Markdown files and docstrings of Python files.

    Raises ValueError if there is no text.
    """
    passages: list[str] = []
    pairs: list[Pair] = []
    for path in _files(docs):
        text = path.read_text(encoding="utf-8", errors="replace")
        if path.suffix == ".py":
            text = "\n\n".join(_docstrings(text))
        for heading, paragraphs in _sections(text):
            passages += [f"# {heading}", *paragraphs] if heading else paragraphs
            pairs += _pairs(heading, paragraphs)
    if not passages:
        raise ValueError("there is no text to learn from: give --docs Markdown files or folders")
    return Corpus(tuple(passages), tuple(pairs))


def _files(docs: Sequence[Path]) -> Iterator[Path]:
    for path in docs:
        if path.is_file():
            yield path
        elif path.is_dir():
            found = sorted(p for p in path.rglob("*") if p.suffix in (".md", ".py") and p.is_file())
            # Hidden folders hold tools and caches, such as a virtual environment.
            yield from (
                p for p in found if not any(n.startswith(".") for n in p.relative_to(path).parts)
            )
        else:
            raise ValueError(f"{path} is neither a file nor a folder")


def _docstrings(source: str) -> Iterator[str]:
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, DOCSTRING_OWNERS) and (text := ast.get_docstring(node)):
            yield text


def _sections(text: str) -> Iterator[tuple[str, list[str]]]:
    """Split a Markdown text into (heading, paragraphs); the heading is empty before the first one."""
    heading, is_code = "", False
    paragraphs: list[str] = []
    for block in re.split(r"\n\s*\n", text):
        block = block.strip()
        if not is_code and (match := re.match(r"#+ +(.+)", block)):
            yield heading, paragraphs
            heading, paragraphs = match[1].strip(), []
            block = block[match.end() :].strip()
        if block:
            paragraphs.append(block)
        is_code ^= block.count("```") % 2 == 1
    yield heading, paragraphs


def _pairs(heading: str, paragraphs: Sequence[str]) -> Iterator[Pair]:
    prose = [" ".join(p.split()) for p in paragraphs if not p.startswith(("```", "|", "    "))]
    if heading and prose:
        for question in QUESTIONS:
            yield Pair(question.format(heading), prose[0])
    for paragraph in prose:
        opening, _, rest = paragraph.partition(". ")
        if rest:  # a prompt that quotes the start of a paragraph is answered with its rest
            yield Pair(f"{opening}.", rest)
