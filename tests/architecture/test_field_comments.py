"""Classes with many fields explain fields beside them, where they are read with their types."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
# A docstring of more fields is read back and forth.
MAX_IN_DOCSTRING = 6


def is_record(node: ast.ClassDef) -> bool:
    """Whether a class is a dataclass or a named tuple. A model's docstring is in the OpenAPI document."""
    return any("dataclass" in ast.unparse(each) for each in node.decorator_list) or any(
        ast.unparse(each) == "NamedTuple" for each in node.bases
    )


def explained_in_docstring(source: str) -> Iterator[str]:
    """Names of the classes of a module with more fields that explain some in their docstring."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and is_record(node):
            fields = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
            names = "|".join(each.id for each in fields if isinstance(each, ast.Name))
            text = " ".join((ast.get_docstring(node) or "").split())
            if len(fields) > MAX_IN_DOCSTRING and re.search(rf"(?:^|[.;,] )(?:{names}): ", text):
                yield node.name


def test_no_long_class_explains_fields_in_its_docstring():
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for root in ("operator/penstock", "engine/penstock_engine")
        for path in (ROOT / root).rglob("*.py")
        for name in explained_in_docstring(path.read_text())
    }
    assert found == set()


def test_a_field_that_a_docstring_explains_is_found():
    fields = "".join(f"    f{number}: int\n" for number in range(MAX_IN_DOCSTRING + 1))
    for docstring, found in (("An A. f1, f2: sizes.", ["A"]), ("An A: it has sizes.", [])):
        source = f'@dataclass(slots=True)\nclass A:\n    """{docstring}"""\n{fields}'
        assert [*explained_in_docstring(source)] == found
