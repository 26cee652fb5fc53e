"""Runtime: the program of an engine pod, and its command-line arguments for each setting."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.core.runtimes.paths import MODEL_MOUNT, mounted_path
from penstock.core.spec.service import ENGINE_PORT, Object, ServiceSpec
from penstock.core.spec.settings import DEFAULT_MEMORY_UTILIZATION_PERCENT, Settings

# Defaults of the operator, whose arguments every engine gets.
DEFAULTS: Settings = {"engine.memoryUtilizationPercent": DEFAULT_MEMORY_UTILIZATION_PERCENT}
VARIABLE = "$("  # Kubernetes replaces $(NAME) in arguments by the value of the variable

# Short flags of `vllm serve`, and the prefixes of them that argparse takes for them.
# `penstock-engine serve` has only the short flags.
SHORT_FLAGS = {
    "-dp": "--data-parallel-size",
    "-e": "--enable-expert-parallel",
    "-ep": "--enable-expert-parallel",
    "-h": "--help",
    "-pp": "--pipeline-parallel-size",
    "-q": "--quantization",
    "-s": "--speculative-config",
    "-sc": "--speculative-config",
    "-t": "--tensor-parallel-size",
    "-tp": "--tensor-parallel-size",
}


@dataclass(frozen=True, slots=True)
class Argument:
    """Command-line arguments of one or several settings.

    paths: of the settings. flags: the flags that `write` may use. write: makes the arguments; called if at
    least one of `paths` is set. values: accepted values of the first path; empty: all that the API accepts.
    advice: for users who set another value.
    """

    paths: tuple[str, ...]
    flags: tuple[str, ...]
    write: Callable[[Settings], list[str]]
    values: Collection[Any] = ()
    advice: str = ""


def option(
    path: str,
    flag: str,
    *,
    text: Callable[[Any], str] = str,
    values: Collection[Any] = (),
    advice: str = "",
) -> Argument:
    """`flag=VALUE` with the setting's value. text: of a value, in the flag's unit."""
    return Argument((path,), (flag,), lambda s: [f"{flag}={text(s[path])}"], values, advice)


def choice(path: str, flag: str, words: Mapping[Any, str]) -> Argument:
    """`flag=WORD`. words: the runtime's word for each value of the setting."""
    return option(path, flag, text=words.__getitem__)


def switch(path: str, flag: str) -> Argument:
    """`flag` if the setting is true, `--no-flag` if it is false; its `write` refuses another value."""
    opposite = flag.replace("--", "--no-", 1)

    def write(settings: Settings) -> list[str]:
        if not isinstance(settings[path], bool):
            raise TypeError(f"{path} must be true or false, not {settings[path]!r}")
        return [flag if settings[path] else opposite]

    return Argument((path,), (flag, opposite), write)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """A program that serves a model."""

    name: str  # the type in spec.runtime
    command: tuple[str, ...]
    arguments: tuple[Argument, ...]  # the flags of each setting
    reserved_flags: Mapping[str, str]  # flags that extraArgs may not have, each with the reason
    # Makes the arguments that depend on neither settings nor devices
    fixed_args: Callable[[ServiceSpec], list[str]]
    environment: Callable[[ServiceSpec], list[Object]]  # makes the container's variables
    # Names of the variables that only pods on some devices have
    device_variables: Collection[str] = ()
    image: str | None = None  # of the container; None: the operator's --engine-image
    readiness_path: str
    liveness_path: str
    startup_s: int = 600  # a container that is not ready after this time is restarted
    takes_extra_args: bool = True  # whether extraArgs are allowed
    has_abbreviations: bool = False  # whether the program accepts a prefix of a flag
    # Makes the arguments that depend on the pod's devices
    device_flags: Callable[[ServiceSpec], list[str]] = field(default=lambda _: [])
    # Makes a sentence for each further argument that extraArgs may not have
    refused_args: Callable[[Sequence[str]], Iterable[str]] = field(default=lambda _: ())

    def serve_args(self, spec: ServiceSpec) -> list[str]:
        """All arguments of an engine."""
        return [
            *self.fixed_args(spec),
            *self.device_flags(spec),
            *self.setting_args(spec.settings),
        ]

    def setting_args(self, settings: Settings) -> list[str]:
        """Arguments of the settings in the order of `arguments`, then extraArgs."""
        args: list[str] = []
        settings = {**DEFAULTS, **settings}
        for each in self.arguments:
            if any(path in settings for path in each.paths):
                args += each.write(settings)
        return [*args, *settings.get("engine.extraArgs", ())]

    def refusals(self, settings: Settings) -> Iterator[str]:
        """Yield a sentence for each setting that the runtime does not support, with the field's name."""
        known = {path: each for each in self.arguments for path in each.paths}
        for path, value in settings.items():
            if not path.startswith("engine.") or (
                path == "engine.extraArgs" and self.takes_extra_args
            ):
                continue
            argument = known.get(path)
            if argument is None:
                yield f"spec.{path} has no effect with runtime {self.name}: remove it"
            elif path == argument.paths[0] and argument.values and value not in argument.values:
                accepted = ", ".join(map(str, sorted(argument.values)))
                advice = f": {argument.advice}" if argument.advice else ""
                yield (
                    f"spec.{path} must be one of {accepted} with runtime {self.name}, not {value}{advice}"
                )
        yield from self._refused_extra_args(settings.get("engine.extraArgs", ()))
        yield from self.refused_args(settings.get("engine.extraArgs", ()))

    def _refused_extra_args(self, args: Collection[str]) -> Iterator[str]:
        """Yield a sentence for each argument whose flag is a variable, is reserved, or has a field."""
        for arg in args:
            if arg.startswith(("-", VARIABLE)) and VARIABLE in arg.partition("=")[0]:
                yield f"spec.engine.extraArgs must not have {arg}: write the flag out, without a variable"
            if not arg.startswith("-"):
                continue
            flag = _canonical(arg)
            for name, reason in self.reserved_flags.items():
                if self._may_parse_as(flag, name):
                    yield f"spec.engine.extraArgs must not have {arg}: {reason}"
            for each in self.arguments:
                if any(self._may_parse_as(flag, name) for name in each.flags):
                    yield f"spec.engine.extraArgs must not have {arg}: set spec.{each.paths[0]} instead"

    def _may_parse_as(self, flag: str, name: str) -> bool:
        """Whether the runtime may parse `flag` as the flag `name`, of which it may be a prefix."""
        is_prefix = self.has_abbreviations and flag.startswith("--") and name.startswith(flag)
        return flag == name or is_prefix


def _canonical(arg: str) -> str:
    """The flag of an argument, as the tables spell it: `--max-num-seqs` for `--max_num_seqs=3`.

    `--no-x` counts as `--x`, and so does `--x.key=value`, with which vLLM sets one key of --x.
    """
    name = arg.partition("=")[0].partition(".")[0]
    if not name.startswith("--"):
        # The value may follow without a space, as in -qawq.
        short = name[:2] if name.startswith(("-h", "-q")) else name
        return SHORT_FLAGS.get(short, short)
    return f"--{name[2:].replace('_', '-').removeprefix('no-')}"


def serve_command(spec: ServiceSpec) -> list[str]:
    """`serve MODEL` with the model's name and the address, alike for penstock-engine and vLLM."""
    return [
        "serve",
        mounted_path(spec.model_uri, MODEL_MOUNT),
        f"--served-model-name={spec.model_name}",
        "--host=$(POD_IP)",
        f"--port={ENGINE_PORT}",
        # Canaries compare the prefix-hit rates of revisions.
        "--enable-prompt-tokens-details",
    ]
