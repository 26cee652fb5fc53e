"""Validation rules of a model's location."""

import re
from collections.abc import Sequence

from penstock.api.schema.rules import Obeys, Rule
from penstock_engine.contract.model_source import (
    FETCHED,
    FORMS,
    MOUNTED,
    PATTERNS,
    PINNED_BY_FRAGMENT,
)

# Characters of a location. The status of an adapter repeats those of all its versions.
MIN_URI_LENGTH, MAX_URI_LENGTH = 8, 512
# The part of a location before the digest of its content, which has neither a query nor spaces.
PLAIN, PIN = r"[^#?\\\x00-\x20\x7f]+", r"(#sha256=[0-9a-f]{64})?"
# A part of a path that is "." or "..", or is it once %2E and %2F are decoded.
DOTS = r"(/|%2[fF])([.]|%2[eE]){1,2}(/|%2[fF]|#|$)"
CLAIM_PATTERN = r"^pvc://[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/[^/]+)*$"
# The first form of each location that is fetched, for descriptions of fields.
_FIRST_FORMS = [FORMS[scheme].partition(", ")[0].partition(" or ")[0] for scheme in FETCHED]
FETCHED_FORMS = f"{', '.join(_FIRST_FORMS[:-1])} or {_FIRST_FORMS[-1]}"


def model_uri(path: str) -> Obeys:
    """Rules of a field with the location of a model, mounted or fetched. path: of the field in the spec.

    The engine reads every location of a fetched model that they accept.
    """
    return Obeys(
        _starts_with(path, (*MOUNTED, *FETCHED)),
        _names_claim(path),
        *(_has_form(path, scheme) for scheme in FETCHED),
        _has_no_dots(path, FETCHED),
        no_parent_folders(path),
    )


def _starts_with(path: str, schemes: tuple[str, ...]) -> Rule:
    starts = tuple("file:///" if scheme == "file" else f"{scheme}://" for scheme in schemes)
    forms = [FORMS["pvc"], FORMS["file"], *starts[len(MOUNTED) :]]
    return Rule(
        " || ".join(f"self.startsWith('{start}')" for start in starts),
        lambda uri: uri.startswith(starts),
        f"{path} must start with {', '.join(forms[:-1])} or {forms[-1]}",
    )


def _names_claim(path: str) -> Rule:
    return Rule(
        f"!self.startsWith('pvc://') || self.matches('{CLAIM_PATTERN}')",
        lambda uri: not uri.startswith("pvc://") or bool(re.fullmatch(CLAIM_PATTERN, uri)),
        f"{path} must name a claim: pvc://CLAIM or pvc://CLAIM/PATH, without a trailing slash",
    )


def _has_form(path: str, scheme: str) -> Rule:
    """Rule that a location of this scheme is as the engine reads it, and has no secret in it."""
    start, pin = f"{scheme}://", PIN if scheme in PINNED_BY_FRAGMENT else ""
    rest = re.sub(r"\(\?P<\w+>", "(", PATTERNS[scheme])
    forms = [rf"^{start}{rest}{pin}$", rf"^{PLAIN}{pin}$"]
    compiled = [re.compile(form, re.ASCII) for form in forms]
    matches = " && ".join(f"self.matches(r'{form}')" for form in forms)
    return Rule(
        f"!self.startsWith('{start}') || {matches}",
        lambda uri: not uri.startswith(start) or all(form.fullmatch(uri) for form in compiled),
        f"{path} must be {FORMS[scheme]}, without spaces, a user, a password or a query: "
        "spec.model.secretRef names the Secret with them",
    )


def _has_no_dots(path: str, fetched: Sequence[str]) -> Rule:
    """Rule that no folder of a fetched model is "." or "..", also if it is written with percent signs."""
    starts = tuple(f"{scheme}://" for scheme in fetched)
    others = " && ".join(f"!self.startsWith('{start}')" for start in starts)
    pattern = re.compile(DOTS)
    return Rule(
        f"({others}) || !self.matches(r'{DOTS}')",
        lambda uri: not uri.startswith(starts) or pattern.search(uri) is None,
        f"{path} must not contain '.' or '..' as a folder, nor as %2E; write the path without it",
    )


def no_parent_folders(path: str) -> Rule:
    """Rule that a location has no "..". path: of the field in the spec, for the message."""
    return Rule(
        "!self.matches('(^|/)[.][.](/|$)')",
        lambda uri: ".." not in uri.split("/"),
        f"{path} must not contain '..'; write the path without it",
    )
