"""Which changes of the schema can break users: each kind of change, its verdict and its message."""

import copy
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from penstock.api.generation import crdgen
from penstock.api.generation.compatibility import Exceptions, breaking_changes, refused_changes
from penstock.api.generation.golden import UnknownKeyword, fields_of, from_text, to_text
from penstock.cli.generated import crds

OLD: dict[str, Any] = {
    "(names)": {"kind": "InferenceService", "plural": "inferenceservices", "shortNames": ["psvc"]},
    "(scale subresource)": {"specReplicasPath": ".spec.replicas"},
    "spec": {"type": "object", "required": True, "rules": ["self.a <= self.b"]},
    "spec.dtype": {"type": "string", "enum": ["auto", "float32"], "default": "auto"},
    "spec.maxNumSeqs": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 64},
    "spec.mode": {"type": "string", "required": True},
    "spec.seed": {"type": "integer", "format": "int64"},
    "spec.template": {"type": "object", "preserveUnknownFields": True},
    "spec.uri": {"type": "string", "pattern": "^a", "minLength": 1, "maxLength": 9},
    "spec.variants": {
        "type": "array",
        "minItems": 1,
        "maxItems": 9,
        "listType": "map",
        "listMapKeys": ["name"],
    },
    "spec.variants[]": {"type": "object"},
    "spec.variants[].name": {"type": "string", "required": True},
    "spec.variants[].price": {"type": "string"},
}
REMOVED = object()


def changed(path: str, **facts: Any) -> dict[str, Any]:
    """OLD with other facts of a path. REMOVED: the fact goes."""
    new = copy.deepcopy(OLD)
    merged = new.get(path, {}) | facts
    new[path] = {name: fact for name, fact in merged.items() if fact is not REMOVED}
    return new


def old_schema_without(*prefixes: str) -> dict[str, Any]:
    return {path: facts for path, facts in OLD.items() if not path.startswith(prefixes)}


SAFE = {
    "nothing": OLD,
    "optional field": changed("spec.quantization", type="string"),
    "optional object with a required field": changed("spec.lora", type="object")
    | {"spec.lora.rank": {"type": "integer", "required": True, "minimum": 1}},
    "field of a list's items": changed("spec.variants[].zone", type="string"),
    "enum value": changed("spec.dtype", enum=["auto", "float32", "fp8"]),
    "no enum": changed("spec.dtype", enum=REMOVED),
    "lower minimum": changed("spec.maxNumSeqs", minimum=0),
    "no minimum": changed("spec.maxNumSeqs", minimum=REMOVED),
    "higher maximum": changed("spec.maxNumSeqs", maximum=65),
    "shorter texts": changed("spec.uri", minLength=0),
    "longer texts": changed("spec.uri", maxLength=10),
    "longer lists": changed("spec.variants", maxItems=10),
    "empty lists": changed("spec.variants", minItems=0),
    "no pattern": changed("spec.uri", pattern=REMOVED),
    "no rule": changed("spec", rules=REMOVED),
    "no longer required": changed("spec.mode", required=REMOVED),
    "int32 to int64": changed("spec.maxNumSeqs", format="int64"),
    "no format": changed("spec.seed", format=REMOVED),
    "texts as well": changed("spec.seed", type="int-or-string", format=REMOVED, pattern="^[0-9]+$"),
    "unknown fields are kept": changed("spec.variants[]", preserveUnknownFields=True),
    "short name": changed("(names)", shortNames=["psvc", "isvc"]),
    "subresource": changed("(status subresource)"),
}
BREAKING = {
    "removed": (old_schema_without("spec.maxNumSeqs"), "spec.maxNumSeqs", "removed"),
    "removed with its fields": (old_schema_without("spec.variants"), "spec.variants", "removed"),
    "renamed": (
        old_schema_without("spec.seed") | {"spec.rng": {"type": "integer"}},
        "spec.seed",
        "removed",
    ),
    "subresource removed": (old_schema_without("(scale"), "(scale subresource)", "removed"),
    "new and required": (
        changed("spec.name", type="string", required=True),
        "spec.name",
        "new and required",
    ),
    "new and required in old items": (
        changed("spec.variants[].zone", type="string", required=True),
        "spec.variants[].zone",
        "new and required",
    ),
    "new with a default": (
        changed("spec.blockSize", type="integer", default=16),
        "spec.blockSize",
        "new with the schema default 16",
    ),
    "new with a default of nothing": (
        changed("spec.lora", type="object", default={}),
        "spec.lora",
        "new with the schema default {}",
    ),
    "other type": (changed("spec.mode", type="object"), "spec.mode", "type string -> object"),
    "only integers": (
        changed("spec.mode", type="integer"),
        "spec.mode",
        "type string -> integer",
    ),
    "int64 to int32": (changed("spec.seed", format="int32"), "spec.seed", "format int64 -> int32"),
    "format": (changed("spec.mode", format="date"), "spec.mode", "format none -> date"),
    "now required": (changed("spec.uri", required=True), "spec.uri", "now required"),
    "enum value removed": (
        changed("spec.dtype", enum=["auto"]),
        "spec.dtype",
        "enum value float32 removed",
    ),
    "enum added": (changed("spec.mode", enum=["a"]), "spec.mode", "enum added"),
    "higher minimum": (
        changed("spec.maxNumSeqs", minimum=2),
        "spec.maxNumSeqs",
        "minimum 1 -> 2",
    ),
    "lower maximum": (
        changed("spec.maxNumSeqs", maximum=63),
        "spec.maxNumSeqs",
        "maximum 64 -> 63",
    ),
    "new minimum": (changed("spec.seed", minimum=0), "spec.seed", "minimum none -> 0"),
    "new maximum": (changed("spec.seed", maximum=9), "spec.seed", "maximum none -> 9"),
    "minLength": (changed("spec.uri", minLength=2), "spec.uri", "minLength 1 -> 2"),
    "maxLength": (changed("spec.uri", maxLength=8), "spec.uri", "maxLength 9 -> 8"),
    "minItems": (changed("spec.variants", minItems=2), "spec.variants", "minItems 1 -> 2"),
    "maxItems": (changed("spec.variants", maxItems=8), "spec.variants", "maxItems 9 -> 8"),
    "maxProperties": (
        changed("spec.template", maxProperties=4),
        "spec.template",
        "maxProperties none -> 4",
    ),
    "new pattern": (changed("spec.mode", pattern="^b"), "spec.mode", "pattern none -> ^b"),
    "other pattern": (changed("spec.uri", pattern="^ab"), "spec.uri", "pattern ^a -> ^ab"),
    "new rule": (changed("spec.mode", rules=["r"]), "spec.mode", "new rule r"),
    "changed rule": (
        changed("spec", rules=["self.a < self.b"]),
        "spec",
        "new rule self.a < self.b",
    ),
    "default changed": (
        changed("spec.dtype", default="float32"),
        "spec.dtype",
        "default auto -> float32",
    ),
    "default removed": (
        changed("spec.dtype", default=REMOVED),
        "spec.dtype",
        "default auto -> none",
    ),
    "default added": (changed("spec.mode", default=0), "spec.mode", "default none -> 0"),
    "default of another type": (
        changed("spec.dtype", default=False),
        "spec.dtype",
        "default auto -> false",
    ),
    "list type": (
        changed("spec.variants", listType="atomic"),
        "spec.variants",
        "listType map -> atomic",
    ),
    "map keys": (
        changed("spec.variants", listMapKeys=["name", "zone"]),
        "spec.variants",
        "listMapKeys [name] -> [name, zone]",
    ),
    "unknown fields are pruned": (
        changed("spec.template", preserveUnknownFields=REMOVED),
        "spec.template",
        "no longer keeps unknown fields",
    ),
    "short name removed": (
        changed("(names)", shortNames=[]),
        "(names)",
        "short name psvc removed",
    ),
    "path of the scale subresource": (
        changed("(scale subresource)", specReplicasPath=".spec.scale"),
        "(scale subresource)",
        "specReplicasPath .spec.replicas -> .spec.scale",
    ),
}
NO_EXCEPTIONS = Exceptions.parse("")


@pytest.mark.parametrize("new", SAFE.values(), ids=SAFE.keys())
def test_an_addition_is_safe(new: dict[str, Any]) -> None:
    assert breaking_changes("InferenceService", OLD, new) == []


@pytest.mark.parametrize(("new", "path", "change"), BREAKING.values(), ids=BREAKING.keys())
def test_a_breaking_change_needs_an_exception(new: dict[str, Any], path: str, change: str) -> None:
    (found,) = refused_changes([OLD], [new], NO_EXCEPTIONS)
    assert (found.kind, found.path, found.change) == ("InferenceService", path, change)
    entry = yaml.safe_load(found.message().partition("is safe:\n")[2])
    assert entry == [{"kind": "InferenceService", "path": path, "change": change, "why": ""}]

    entry[0]["why"] = "Nobody could set it."
    assert refused_changes([OLD], [new], Exceptions.parse(yaml.safe_dump(entry))) == []


def test_an_exception_allows_no_other_change() -> None:
    entry = {
        "kind": "InferenceService",
        "path": "spec.maxNumSeqs",
        "change": "maximum 64 -> 63",
        "why": "No engine started with 64.",
    }
    exceptions = Exceptions.parse(yaml.safe_dump([entry]))
    new = changed("spec.maxNumSeqs", maximum=62)
    assert [c.change for c in refused_changes([OLD], [new], exceptions)] == ["maximum 64 -> 62"]


def test_a_kind_that_is_gone_is_a_breaking_change() -> None:
    assert "spec" in {change.path for change in refused_changes([OLD], [], NO_EXCEPTIONS)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- {kind: A, path: spec, change: removed}", "must have kind, path, change and why"),
        ("- {kind: A, path: spec, change: removed, why: ' '}", "must say why it is safe"),
        ("- spec", "must have kind, path, change and why"),
    ],
)
def test_an_exception_without_a_reason_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Exceptions.parse(text)


def test_a_golden_file_holds_a_line_for_each_field_and_is_read_back() -> None:
    for crd in crdgen.crds():
        text = to_text(crd)
        assert from_text(text) == fields_of(crd)
        assert len(text.splitlines()) == len(fields_of(crd)) + 2
    line = "spec.modelName: {type: string, minLength: 1, maxLength: 128, required: true, rules: ["
    assert line in to_text(crdgen.model_route_crd())


def test_a_keyword_that_the_check_would_miss_is_refused() -> None:
    crd = crdgen.model_route_crd()
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["nullable"] = True
    with pytest.raises(UnknownKeyword, match="spec: \\['nullable'\\]"):
        fields_of(crd)


def run(folder: Path, *, check: bool = False) -> int:
    """Run `penstock crds`. Returns its exit code."""
    try:
        crds.command(folder, check)
    except typer.Exit as end:
        return end.exit_code
    return 0


@pytest.mark.slow
def test_the_command_writes_additions_and_refuses_breaking_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "golden" / "modelroutes.yaml"
    assert run(tmp_path) == 0
    current = path.read_text()
    assert run(tmp_path, check=True) == 0

    lines = current.splitlines(keepends=True)
    path.write_text("".join(line for line in lines if ".timeouts." not in line))
    assert run(tmp_path, check=True) == 1
    assert "Run `make generate`" in capsys.readouterr().err
    assert run(tmp_path) == 0
    assert path.read_text() == current

    wider = current.replace("modelName: {type: string, minLength: 1", "modelName: {type: string")
    path.write_text(wider)
    for check in (False, True):
        assert run(tmp_path, check=check) == 1
        assert "ModelRoute spec.modelName: minLength none -> 1" in capsys.readouterr().err
        assert path.read_text() == wider

    entry = {
        "kind": "ModelRoute",
        "path": "spec.modelName",
        "change": "minLength none -> 1",
        "why": "No client can send an empty name.",
    }
    (path.parent / "compatibility.yaml").write_text(yaml.safe_dump([entry]))
    assert run(tmp_path) == 0
    assert path.read_text() == current
