"""Location of a model or adapter, as a URI: a volume, the hub, an object store, a registry or a web server.

    pvc://CLAIM[/PATH]                        a folder of a PersistentVolumeClaim
    file:///PATH                              a folder of the node
    hf://ORG/NAME[@REVISION][/PATH]           a repository of the hub; PATH: a folder or a GGUF file in it
    s3://, gs://, az://BUCKET[/PATH]          objects below a path, or one GGUF file
    oci://HOST/NAME[:TAG|@sha256:DIGEST]      an image or artifact of a registry
    https://HOST/PATH[#sha256=DIGEST]         an archive, a file list, or one GGUF file

`#sha256=DIGEST` pins what a URI without a revision names: the file of https, the listing of an object store.
"""

import re
from dataclasses import dataclass
from typing import Literal, cast, get_args
from urllib.parse import quote, unquote

Scheme = Literal["pvc", "file", "hf", "s3", "gs", "az", "oci", "https"]

FORMS: dict[str, str] = {
    "pvc": "pvc://CLAIM/PATH",
    "file": "file:///PATH",
    "hf": "hf://ORG/NAME@REVISION, hf://ORG/NAME or hf://ORG/NAME@REVISION/PATH",
    "s3": "s3://BUCKET/PATH",
    "gs": "gs://BUCKET/PATH",
    "az": "az://CONTAINER/PATH",
    "oci": "oci://HOST/NAME:TAG or oci://HOST/NAME@sha256:DIGEST",
    "https": "https://HOST/PATH#sha256=DIGEST",
}
# Schemes of folders that pods mount, and of sources that models are fetched from.
MOUNTED = ("pvc", "file")
FETCHED = tuple(scheme for scheme in FORMS if scheme not in MOUNTED)
MAX_URI_LENGTH = 2048  # characters; the longest path of an object has 1024 bytes

CLAIM = r"(?P<host>[a-z0-9]([-a-z0-9.]*[a-z0-9])?)(/(?P<path>.+))?"
HUB = (
    r"(?P<name>[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})"
    # Names with a slash: those of the hub itself, and others with %2F.
    r"(@(?P<revision>refs/(?:pr/\d+|convert/[\w.-]+)|[^/@]+))?(/(?P<path>[^@]+))?"
)
BUCKET = r"(?P<host>[a-z0-9][\w.-]{1,221}[a-z0-9])(/(?P<path>.*))?"
# A name of a host and its port. Each label has at most 63 characters, or it cannot be resolved.
HOST = r"[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*\.?(:\d{1,5})?"
REGISTRY = (
    rf"(?P<host>{HOST})/(?P<name>[a-z0-9]+([._/-]+[a-z0-9]+)*)"
    r"(:(?P<revision>[A-Za-z0-9_][\w.-]{0,127}))?(@(?P<digest>sha256:[0-9a-f]{64}))?"
)
SERVER = rf"(?P<host>{HOST}|\[[0-9a-fA-F:]+\](:\d{{1,5}})?)/(?P<path>[^#]*[^/#][^#]*)"
PATTERNS: dict[str, str] = {
    "pvc": CLAIM, "file": r"(?P<path>/.+)", "hf": HUB, "s3": BUCKET, "gs": BUCKET, "az": BUCKET,
    "oci": REGISTRY, "https": SERVER,
}  # fmt: skip
PINNED_BY_FRAGMENT = ("s3", "gs", "az", "https")
COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Location of a model or adapter.

    host: claim, bucket, registry or server. name: repository of hf and oci. path: below these, without
    slashes at its ends, except for file. revision: branch, tag or commit. digest: sha256:…, of the content.
    """

    scheme: Scheme
    host: str = ""
    name: str = ""
    path: str = ""
    revision: str | None = None
    digest: str | None = None

    @property
    def is_resolved(self) -> bool:
        """Whether the URI names the same files at any time."""
        if self.scheme == "hf":
            return self.revision is not None and COMMIT.fullmatch(self.revision) is not None
        return self.digest is not None

    @property
    def last_name(self) -> str:
        """Last part of the path, as the file or folder is called that is fetched; empty without a path."""
        name = self.path.rpartition("/")[2]
        return unquote(name) if self.scheme == "https" else name

    def __str__(self) -> str:
        place = f"{self.scheme}://{self.host}"
        if self.scheme == "hf":
            revision = "" if self.revision is None else f"@{_quoted(self.revision)}"
            return f"hf://{self.name}{revision}" + (f"/{self.path}" if self.path else "")
        if self.scheme == "oci":
            tag = "" if self.revision is None else f":{self.revision}"
            return f"{place}/{self.name}{tag}" + (f"@{self.digest}" if self.digest else "")
        path = self.path if self.scheme == "file" or not self.path else f"/{self.path}"
        return place + path + (f"#{self.digest.replace(':', '=')}" if self.digest else "")


def is_fetched(uri: str) -> bool:
    """Whether a model or adapter is fetched; otherwise it is in a folder that pods mount."""
    return uri.partition("://")[0] in FETCHED


def parse_model_source(uri: str) -> ModelSource:
    """The location that a URI names. Raises ValueError with a sentence for its author.

    The sentence does not repeat the URI, which may have a password in it by mistake.
    """
    scheme, separator, rest = uri.partition("://")
    if not separator or scheme not in get_args(Scheme):
        known = ", ".join(f"{each}://" for each in get_args(Scheme))
        raise ValueError(f"the model's URI must start with one of {known}")
    if len(uri) > MAX_URI_LENGTH:
        raise ValueError(f"the model's URI has more than {MAX_URI_LENGTH} characters")
    digest = None
    if scheme in PINNED_BY_FRAGMENT:
        rest, _, fragment = rest.partition("#")
        digest = _digest_of(fragment)
    _check_characters(scheme, rest)
    match = re.fullmatch(PATTERNS[scheme], rest, re.ASCII)
    if match is None:
        raise ValueError(f"a URI of {scheme}:// has to be {FORMS[scheme]}")
    parts = {name: value or "" for name, value in match.groupdict().items()}
    path = parts.get("path", "")
    path = path if scheme == "file" else path.strip("/")
    _check_path(path)
    revision = unquote(parts["revision"]) if parts.get("revision") else None
    return ModelSource(
        scheme=cast(Scheme, scheme),
        host=parts.get("host", ""),
        name=parts.get("name", ""),
        path=path,
        revision=revision,
        digest=parts.get("digest") or digest,
    )


def _digest_of(fragment: str) -> str | None:
    if not fragment:
        return None
    if not re.fullmatch(r"sha256=[0-9a-f]{64}", fragment):
        raise ValueError("what follows # has to be sha256= and 64 hexadecimal digits in lower case")
    return fragment.replace("=", ":")


def _check_characters(scheme: str, rest: str) -> None:
    """Refuse secrets, as URIs are stored and shown, and characters that no URI has."""
    if scheme == "https" and ("@" in rest.partition("/")[0] or "?" in rest):
        raise ValueError(
            "the model's URI has a user, a password or a query: put secrets into the file that NETRC names"
        )
    if any(ord(character) <= ord(" ") or ord(character) == 0x7F for character in rest):
        raise ValueError("the model's URI has a space or a control character: write it as %20")
    if "\\" in rest:
        raise ValueError("the model's URI has a backslash: folders are divided by /")


def _check_path(path: str) -> None:
    if any(part in (".", "..") for part in unquote(path).split("/")):
        raise ValueError("the model's URI must not contain '.' or '..' as a folder")


def _quoted(revision: str) -> str:
    is_own_name = re.fullmatch(r"refs/(pr/\d+|convert/[\w.-]+)", revision)
    return revision if is_own_name else quote(revision, safe="")
