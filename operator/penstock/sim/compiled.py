"""Compiles the simulator's busiest modules with mypyc and caches the build.

    sources -> digest -> CACHE/compiled/DIGEST/**.so -> on the module path before the sources

The digest covers the compiled modules, the versions of mypy and Python, and every imported source of this
project, so a build always matches the sources. Without mypyc (`penstock[fast]`), without a C compiler, or
after a failed build, the modules are interpreted. Results are the same to the last bit.
"""

import ast
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Collection, Iterator, Mapping
from hashlib import sha256
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock.clients.caches import cache_root

COMPILED = (
    *(
        f"penstock_engine.core.{name}"
        for name in (
            "blocks", "cache", "draft_planner", "events", "host_tier", "in_flight_steps", "prefill_budget",
            "scheduler", "scheduler_config", "scheduler_state", "sequence", "stats", "step",
            "stop_check", "waiting_queue",
        )
    ),
    *(
        f"penstock.core.{name}"
        for name in (
            "routing.admission", "routing.engine_load", "routing.pick", "routing.prefill_throughput",
            "routing.scorers", "routing.weights", "scaling.histogram",
        )
    ),
    *(
        f"penstock.sim.{name}"
        for name in ("batch", "clock", "engine", "gateway", "leap", "leap_scheduler", "request")
    ),
)  # fmt: skip
# Arguments that switch compilation off, or simulate nothing.
LEAVING = {"--interpreted", "--help", "--list", "--check"}
BUILD_S = 30
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


def prefer(arguments: Collection[str], check: Callable[[], None] = lambda: None) -> None:
    """Use compiled modules from here on, and build them first if needed.

    Does nothing if one of them is loaded already: a mix of both is invalid. check: called before a build.
    """
    if LEAVING.isdisjoint(arguments) and sys.modules.keys().isdisjoint(COMPILED):
        use(built(COMPILED, check))


def use(folder: Path | None) -> None:
    """Put a build's folder on the module path. None changes nothing."""
    if folder is None:
        return
    sys.path.append(str(folder))  # for the shared library of a build
    for path in sorted(folder.glob(f"**/*/*{SUFFIX}")):
        package = path.parent.relative_to(folder)
        places = import_module(".".join(package.parts)).__path__
        if str(path.parent) not in places:
            places.insert(0, str(path.parent))


def used() -> Path | None:
    """Folder of the build in use, or None."""
    return next((Path(p) for p in sys.path if Path(p).parent == _builds()), None)


def built(modules: Collection[str], check: Callable[[], None] = lambda: None) -> Path | None:
    """Folder with a build of these modules, built unless cached; None if they cannot be compiled.

    check: called before a build.
    """
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if find_spec("mypyc") is None or shutil.which(compiler) is None:
        return None
    sources = sources_of(modules)
    folder = _builds() / digest_of(modules, sources)
    if not folder.exists():
        check()
        try:
            _build(modules, sources, folder)
        except OSError as error:
            print(
                f"the simulator runs interpreted: compiled modules cannot be stored: {error}",
                file=sys.stderr,
            )
            return None
    return None if (folder / "failed.txt").exists() else folder


def sources_of(modules: Collection[str]) -> dict[str, Path]:
    """Map module to file, for these modules and every module of this project that they import."""
    found: dict[str, Path] = {}
    names = list(modules)
    while names:
        name = names.pop()
        path = None if name in found else _file_of(name)
        if path is not None:
            found[name] = path
            names += [name.rpartition(".")[0], *_imports(path)]
    return found


def digest_of(modules: Collection[str], sources: Mapping[str, Path]) -> str:
    key = f"{metadata.version('mypy')} {sys.version} {SUFFIX} {sorted(modules)}"
    digest = sha256(key.encode())
    for name in sorted(sources):
        digest.update(b"\0" + name.encode() + b"\0" + sources[name].read_bytes())
    return digest.hexdigest()[:24]


def _builds() -> Path:
    return cache_root() / "compiled"


def _file_of(module: str) -> Path | None:
    """File of a module of this project; None for other modules and for names inside a module."""
    package, _, rest = module.partition(".")
    spec = find_spec(package) if package in ("penstock", "penstock_engine") else None
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0], *rest.split("."))
    candidates = [path / "__init__.py", path.with_suffix(".py")] if rest else [path / "__init__.py"]
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _build(modules: Collection[str], sources: Mapping[str, Path], folder: Path) -> None:
    """Write a folder with the compiled modules, or with failed.txt and the compiler's output."""
    print(
        f"compiling the simulator once, about {BUILD_S} s; --interpreted skips this",
        file=sys.stderr,
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix="building-") as text:
        work, product = Path(text, "work"), Path(text, "product")
        product.mkdir()
        files = {name: work.joinpath(*_place(name, path)) for name, path in sources.items()}
        for name, path in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(sources[name], path)
        failure = _compile(work, [str(files[name].relative_to(work)) for name in modules])
        if failure is not None:
            (product / "failed.txt").write_text(failure)
            print(
                f"the simulator runs interpreted: compilation failed, see {folder}/failed.txt",
                file=sys.stderr,
            )
        for path in [] if failure is not None else _products(work):
            target = product / path.relative_to(work)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)
        if not folder.exists():  # another process may have finished the same build first
            product.rename(folder)


def _place(name: str, path: Path) -> list[str]:
    """Path of a source below the build folder."""
    parts = name.split(".")
    return [*parts, path.name] if path.name == "__init__.py" else [*parts[:-1], path.name]


def _compile(work: Path, files: Collection[str]) -> str | None:
    """Run mypyc. Returns its output on failure, else None."""
    options = ["--follow-imports=silent", "--ignore-missing-imports", "--no-color-output"]
    done = subprocess.run(
        [sys.executable, "-m", "mypyc", *options, *files],
        cwd=work, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return f"{done.stdout}\n{done.stderr}" if done.returncode else None


def _products(work: Path) -> list[Path]:
    return [p for p in work.rglob(f"*{SUFFIX}") if p.relative_to(work).parts[0] != "build"]
