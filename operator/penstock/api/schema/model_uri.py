"""Validation rules of a model's location."""

import re

from penstock.api.schema.rules import Obeys, Rule

CLAIM_PATTERN = r"^pvc://[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/[^/]+)*$"


def model_uri(path: str) -> Obeys:
    """Rules of a field with a model's location. path: of the field in the spec, for messages."""
    return Obeys(
        Rule(
            "self.startsWith('pvc://') || self.startsWith('file:///')",
            lambda uri: uri.startswith(("pvc://", "file:///")),
            f"{path} must start with pvc://CLAIM/PATH or file:///PATH",
        ),
        Rule(
            f"!self.startsWith('pvc://') || self.matches('{CLAIM_PATTERN}')",
            lambda uri: not uri.startswith("pvc://") or bool(re.fullmatch(CLAIM_PATTERN, uri)),
            f"{path} must name a claim: pvc://CLAIM or pvc://CLAIM/PATH, without a trailing slash",
        ),
        no_parent_folders(path),
    )


def no_parent_folders(path: str) -> Rule:
    """Rule that a location has no "..". path: of the field in the spec, for the message."""
    return Rule(
        "!self.matches('(^|/)[.][.](/|$)')",
        lambda uri: ".." not in uri.split("/"),
        f"{path} must not contain '..'; write the path without it",
    )
