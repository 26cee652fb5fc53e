"""Import rules of benchmarks, and the pages that name them."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "benchmarks").rglob("*.py"))
}
PAGES = [
    *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/results/*.md"), ROOT / "CONTRIBUTING.md"
]  # fmt: skip
MAIN = 'if __name__ == "__main__":'


def imported(path: Path) -> set[str]:
    """Modules of benchmarks that a file imports, also by import_module."""
    text = path.read_text()
    if "benchmarks" not in text:  # parsing all files takes ten times as long
        return set()
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ImportFrom(module=str(module)):
                found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
            case ast.Import():
                found |= {alias.name for alias in node.names}
            case ast.Constant(value=str(text)):
                found.add(text)
    return found & MODULES.keys()


def importers(folder: str) -> dict[str, set[str]]:
    """Imported modules of benchmarks by file below a folder, of files that import some."""
    files = {str(path.relative_to(ROOT)): path for path in sorted((ROOT / folder).rglob("*.py"))}
    return {name: found for name, path in files.items() if (found := imported(path))}


def is_program(module: str) -> bool:
    return MAIN in MODULES[module].read_text()


def test_support_and_product_import_no_benchmark() -> None:
    folders = ("tests/support", "operator", "engine")
    assert [importers(folder) for folder in folders] == [{}, {}, {}]


def test_a_test_imports_programs_only() -> None:
    """Helpers that tests need are in tests/support; tests/benchmarks tests the parts of benchmarks."""
    own = str(Path(__file__).relative_to(ROOT))
    wrong = {
        (name, module)
        for folder in ("tests", "e2e")
        for name, modules in importers(folder).items()
        if not name.startswith("tests/benchmarks/") and name != own
        for module in modules
        if not is_program(module)
    }
    assert wrong == set()


def test_every_benchmark_is_named_on_a_page_or_part_of_one() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    parts = {module for modules in importers("benchmarks").values() for module in modules}
    unnamed = [
        module
        for module, path in MODULES.items()
        if module not in parts and path.stem not in ("__init__", "__main__")
        if module not in text and str(path.relative_to(ROOT)) not in text
    ]
    assert unnamed == []
