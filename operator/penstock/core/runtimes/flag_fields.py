"""Puts the fields of an InferenceService in place of the flags that messages of engines name."""

import re
from collections.abc import Iterable
from itertools import takewhile

from penstock.core.runtimes.penstock import RUNTIME

# Sizes of flags in binary units, which Kubernetes writes as Ki, Mi and Gi.
_SIZE = re.compile(r"\b(\d+[KMG])\b")
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")


def _section(paths: Iterable[str]) -> str:
    """The part of the spec that has all of these settings: a field, or the section of several."""
    names = zip(*(path.split(".") for path in paths), strict=False)
    return ".".join(each[0] for each in takewhile(lambda each: len({*each}) == 1, names))


# Field of each flag that has one.
FIELDS = {flag: f"spec.{_section(each.paths)}" for each in RUNTIME.arguments for flag in each.flags}


def in_fields(message: str) -> str:
    """The message with fields in place of flags, and their sizes as quantities; other flags stay.

    A message that names fields is unchanged: those of earlier engines did.
    """
    if "spec." in message:
        return message
    replaced = _FLAG.sub(lambda match: FIELDS.get(match.group(), match.group()), message)
    return message if replaced == message else _SIZE.sub(r"\1i", replaced)
