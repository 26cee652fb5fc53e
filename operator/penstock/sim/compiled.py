"""The simulator's busiest modules as machine code: the same sources, compiled once by mypyc and kept.

    sources -> their digest -> CACHE/compiled/DIGEST/**.so -> looked at before the sources

The digest is of what is compiled, by which mypy and Python, and of every source of ours that it imports:
no build is of other sources than those that are here. Without mypyc (`penstock[fast]`) and a C compiler all
is interpreted, and so it is where the sources do not compile; results are the same to the last bit.
"""

import ast
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Collection, Iterator, Mapping
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
            "routing.weights", "scaling.histogram",
        )
    ),
    *(f"penstock.sim.{name}" for name in ("batch", "clock", "engine", "gateway", "leap", "request")),
)  # fmt: skip
# Arguments of a program that is to leave it, or that simulates nothing.
LEAVING = {"--interpreted", "--help", "--list"}
BUILD_S = 30
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


def prefer(arguments: Collection[str]) -> None:
    """Compiled modules from here on, built first if need be. Not when one of them is loaded already:
    half of them would be neither."""
    if LEAVING.isdisjoint(arguments) and sys.modules.keys().isdisjoint(COMPILED):
        use(built(COMPILED))


def use(folder: Path | None) -> None:
    """folder: of a build; None leaves all as it is."""
    if folder is None:
        return
    sys.path.append(str(folder))  # for what the modules of a build share
    for path in sorted(folder.glob(f"**/*/*{SUFFIX}")):
        package = path.parent.relative_to(folder)
        places = import_module(".".join(package.parts)).__path__
        if str(path.parent) not in places:
            places.insert(0, str(path.parent))


def used() -> Path | None:
    """The build in use."""
    return next((Path(p) for p in sys.path if Path(p).parent == _builds()), None)


def built(modules: Collection[str]) -> Path | None:
    """The build of these modules as they are now, made unless it is there; None where none can be."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if find_spec("mypyc") is None or shutil.which(compiler) is None:
        return None
    sources = sources_of(modules)
    folder = _builds() / digest_of(modules, sources)
    if not folder.exists():
        try:
            _build(modules, sources, folder)
        except OSError as error:
            print(
                f"interpreted, as there is no place for compiled modules: {error}", file=sys.stderr
            )
            return None
    return None if (folder / "failed.txt").exists() else folder


def sources_of(modules: Collection[str]) -> dict[str, Path]:
    """Module -> file: of these modules, and of all of ours that they import."""
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
    told = f"{metadata.version('mypy')} {sys.version} {SUFFIX} {sorted(modules)}"
    digest = sha256(told.encode())
    for name in sorted(sources):
        digest.update(b"\0" + name.encode() + b"\0" + sources[name].read_bytes())
    return digest.hexdigest()[:24]


def _builds() -> Path:
    return cache_root() / "compiled"


def _file_of(module: str) -> Path | None:
    """None when it is not ours, or no module: what is imported may be a name in one."""
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
    """Leaves the folder with the modules, or with what the compiler said instead of them."""
    print(
        f"compiling the simulator once, about {BUILD_S} s; --interpreted leaves it", file=sys.stderr
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix="building-") as text:
        work, product = Path(text, "work"), Path(text, "product")
        product.mkdir()
        files = {name: work.joinpath(*_place(name, path)) for name, path in sources.items()}
        for name, path in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(sources[name], path)
        told = _compile(work, [str(files[name].relative_to(work)) for name in modules])
        if told is not None:
            (product / "failed.txt").write_text(told)
            print(f"interpreted, as it did not compile: {folder}/failed.txt", file=sys.stderr)
        for path in [] if told is not None else _products(work):
            target = product / path.relative_to(work)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)
        if not folder.exists():  # another process may have been sooner, with the same
            product.rename(folder)


def _place(name: str, path: Path) -> list[str]:
    """Of a source below the folder in which it is compiled."""
    parts = name.split(".")
    return [*parts, path.name] if path.name == "__init__.py" else [*parts[:-1], path.name]


def _compile(work: Path, files: Collection[str]) -> str | None:
    """What went wrong, or None."""
    options = ["--follow-imports=silent", "--ignore-missing-imports", "--no-color-output"]
    done = subprocess.run(
        [sys.executable, "-m", "mypyc", *options, *files],
        cwd=work, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return f"{done.stdout}\n{done.stderr}" if done.returncode else None


def _products(work: Path) -> list[Path]:
    return [p for p in work.rglob(f"*{SUFFIX}") if p.relative_to(work).parts[0] != "build"]
