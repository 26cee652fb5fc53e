"""Checks of what an image contains: its facts, labels and size against the rules. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Record = dict[str, Any]
Facts = Mapping[str, Any]

# No part of a running container, whatever it does.
TOOLS = frozenset({"hatchling", "pip", "pytest", "uv"})
LABELS = ("title", "description", "licenses", "version", "revision", "created")
LABEL_PREFIX = "org.opencontainers.image."
# Debian's bundle has some 140; an empty or truncated one is what the check finds.
MIN_CERTIFICATES = 100
MAX_NAMED = 5  # modules in a line


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of one image.

    distributions: of Python, which it must not have. programs: of image_facts.PROGRAMS, which it may have.
    max_bytes: of its files; None without a bound.
    """

    image: str
    distributions: frozenset[str]
    programs: frozenset[str]
    max_bytes: int | None


def content_records(rules: Rules, facts: Facts) -> list[Record]:
    """A record of each check of a container's facts, with the run's user and group."""
    unwanted = sorted((rules.distributions | TOOLS) & set(facts["distributions"]))
    programs = sorted(set(facts["programs"]) - rules.programs)
    checks: dict[str, tuple[bool, Record]] = {
        "only /tmp is writable": (facts["writable"] == ["/tmp"], {"writable": facts["writable"]}),
        "distributions": (
            not unwanted,
            {"unwanted": unwanted, "count": len(facts["distributions"])},
        ),
        "programs": (not programs, {"unwanted": programs}),
        "setuid programs": (not facts["setuid_files"], {"found": facts["setuid_files"]}),
        "CA certificates": (
            facts["certificates"] >= MIN_CERTIFICATES,
            {"count": facts["certificates"]},
        ),
        "time zones": (facts["system_has_time_zones"], {}),
        "bytecode": (not facts["stale_bytecode"], {"stale": facts["stale_bytecode"][:MAX_NAMED]}),
    }
    who = {"image": rules.image, "uid": facts["uid"], "gid": facts["gid"]}
    return [{"check": name, "ok": ok} | who | figures for name, (ok, figures) in checks.items()]


def configuration_records(rules: Rules, version: str, inspected: Mapping[str, Any]) -> list[Record]:
    """Records of labels, user and size. inspected: what `podman image inspect` says of the image."""
    configuration = inspected["Config"]
    labels = configuration.get("Labels") or {}
    missing = [name for name in LABELS if not labels.get(LABEL_PREFIX + name)]
    size_bytes = inspected["Size"]
    user = configuration.get("User", "")
    return [
        {
            "check": "labels",
            "ok": not missing and labels[f"{LABEL_PREFIX}version"] == version,
            "image": rules.image,
            "missing": missing,
        },
        {
            "check": "numeric user other than root",
            "ok": user.split(":")[0].isdigit() and user.split(":")[0] != "0",
            "image": rules.image,
            "user": user,
        },
        {
            "check": "size",
            "ok": rules.max_bytes is None or size_bytes <= rules.max_bytes,
            "image": rules.image,
            "mb": round(size_bytes / 1e6, 1),
        },
    ]
