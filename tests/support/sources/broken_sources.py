"""Broken sources, as the hub offers them: each has a reason and a sentence of its own."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tests.support.sources.faults import Fault
from tests.support.sources.hub_server import HubServer
from tests.support.sources.model_files import model_files, safetensors, sharded_files
from tests.support.sources.quick_limits import QUICK

from penstock_engine.sources.limits import FetchLimits

NAME = "org/name"
Files = Callable[[], dict[str, bytes]]


def with_file(name: str, data: bytes) -> Files:
    return lambda: {**model_files(), name: data}


def cut_shard() -> dict[str, bytes]:
    return {**model_files(), "model.safetensors": safetensors(100_000)[:-5000]}


def without_shard() -> dict[str, bytes]:
    return {name: data for name, data in sharded_files(3).items() if "00002-of" not in name}


def pickle_only() -> dict[str, bytes]:
    return {"config.json": b"{}", "pytorch_model.bin": b"\x80\x04."}


@dataclass(frozen=True)
class Broken:
    """A broken source. faults: of its server. repository: arguments of HubServer.add."""

    reason: str
    sentence: str
    uri: str = f"hf://{NAME}"
    files: Files = model_files
    faults: tuple[Callable[[HubServer], Fault], ...] = ()
    repository: dict[str, Any] = field(default_factory=dict)
    token: str = ""
    limits: FetchLimits = QUICK
    is_retryable: bool = False
    endpoint: str = ""


def fault(kind: Any, path: str = "signature", **settings: Any) -> Callable[[HubServer], Fault]:
    return lambda _: Fault(kind, path, **settings)


OTHER_SHA256 = hashlib.sha256(b"other").hexdigest()
SHORT = replace(QUICK, deadline_s=1.0, max_attempts=1000, first_delay_s=0.2, max_delay_s=0.2)

SOURCES = {
    "unknown scheme": Broken("BadSource", "must start with", uri="ftp://host/x"),
    "secret in the uri": Broken("BadSource", "NETRC", uri="https://me:pw@host/m.tar"),
    "mounted": Broken("NotFetchable", "mount it", uri="pvc://claim/model"),
    "no repository": Broken("RepositoryNotFound", "or it is private", uri="hf://org/missing"),
    "no repository for this token": Broken(
        "RepositoryNotFound", "check the name", uri="hf://org/missing", token="hf_any"
    ),
    "missing revision": Broken("RevisionNotFound", "'v9'", uri=f"hf://{NAME}@v9"),
    "missing folder": Broken("NotFound", "no folder or file 'sub'", uri=f"hf://{NAME}/sub"),
    "wrong token": Broken("Unauthorized", "HF_TOKEN", token="hf_wrong"),
    "private": Broken("RepositoryNotFound", "set HF_TOKEN", repository={"token": "hf_right"}),
    "gated": Broken("GatedModel", "accept its terms", repository={"token": "hf_right", "is_gated": True}),
    "forbidden file": Broken("Forbidden", "read access", faults=(fault("status", status=403),)),
    "file is gone": Broken("NotFound", "check the URI", faults=(fault("status", status=404),)),
    "pickle only": Broken("PickleOnly", "never read", files=pickle_only),
    "empty": Broken("EmptySource", "no files", files=dict),
    "no weights": Broken("NoWeights", "neither", files=lambda: {"config.json": b"{}"}),
    "no configuration": Broken(
        "NotAModel", "config.json", files=lambda: {"model.safetensors": safetensors(10)}
    ),
    "path traversal": Broken(
        "UnsafeName", "'../../etc/cron.d/x'", files=with_file("../../etc/cron.d/x", b"x")
    ),
    "absolute name": Broken("UnsafeName", "'/etc/passwd'", files=with_file("/etc/passwd", b"x")),
    "long name": Broken("NameTooLong", "rename", files=with_file("x" * 300, b"x")),
    "several gguf files": Broken(
        "SeveralGgufFiles", "name one", files=lambda: {"a.gguf": b"GGUF", "b.gguf": b"GGUF"}
    ),
    "split gguf": Broken(
        "SplitGguf", "merge", files=lambda: {"a-00001-of-00002.gguf": b"GGUF"}
    ),
    "gguf that is a pointer": Broken(
        "NotGguf", "pointer", files=lambda: {"a.gguf": b"version https://git-lfs"}
    ),
    "weights that are a pointer": Broken(
        "NotSafetensors", "pointer", files=with_file("model.safetensors", b"version https://git-lfs")
    ),
    "weights cut at the source": Broken("IncompleteWeights", "upload it again", files=cut_shard),
    "missing shard": Broken("MissingShard", "00002-of-00003", files=without_shard),
    "broken index": Broken(
        "BadIndex", "upload",
        files=lambda: {**sharded_files(2), "model.safetensors.index.json": b"{"},
    ),
    "too many files": Broken(
        "TooManyFiles", "more than 5", limits=replace(QUICK, max_files=5)
    ),
    "too large": Broken("ModelTooLarge", "limit", limits=replace(QUICK, max_model_bytes=1000)),
    "wrong digest": Broken(
        "WrongDigest", "2 downloads", repository={"listed_sha256": {"model.safetensors": OTHER_SHA256}}
    ),
    "damaged on the way": Broken("WrongDigest", "proxy", faults=(fault("corrupt"),)),
    "truncated": Broken("Truncated", "closed the connection", faults=(fault("truncate"),), is_retryable=True),
    "shorter than listed": Broken(
        "SourceChanged", "changed", repository={"listed_sizes": {"model.safetensors": 999_999}},
        is_retryable=True,
    ),
    "more than asked for": Broken("WrongSize", "more of model", faults=(fault("longer"),)),
    "no ranges": Broken("RangesIgnored", "range requests", faults=(fault("whole"),)),
    "hangs": Broken("NoResponse", "sends nothing", faults=(fault("hang", times=9),), is_retryable=True),
    "hangs in the body": Broken(
        "NoResponse", "sends nothing", faults=(fault("hang_in_body", times=9),), is_retryable=True
    ),
    "trickles": Broken("TooSlow", "KiB/s", faults=(fault("trickle"),), is_retryable=True),
    "always 500": Broken("ServerError", "status 500", faults=(fault("status"),), is_retryable=True),
    "rate limit": Broken(
        "RateLimited", "limits requests",
        faults=(fault("status", status=429, headers={"Retry-After": "999"}),), is_retryable=True,
    ),
    "hub is down": Broken(
        "ServerError", "status 503", faults=(fault("status", "/api/models/org", status=503),),
        is_retryable=True,
    ),
    "drops connections": Broken(
        "ConnectionLost", "before the answer", faults=(fault("drop"),), is_retryable=True
    ),
    "redirects in a circle": Broken(
        "TooManyRedirects", "redirects",
        faults=(lambda hub: Fault("redirect", "/resolve/", location=f"{hub.url}/a/b/resolve/c"),),
    ),
    "redirects to no host": Broken(
        "BadRedirect", "which is no host", faults=(fault("redirect", "/resolve/", location="http://a..b/c"),)
    ),
    "redirects to a long host": Broken(
        "BadRedirect", "which is no host",
        faults=(fault("redirect", "/resolve/", location=f"http://{'a' * 64}.local/c"),),
    ),
    "endpoint with another address": Broken(
        "BadSource", "no name or address of a host", endpoint="http://[::::]"
    ),
    "redirects to a file": Broken(
        "BadRedirect", "not an http", faults=(fault("redirect", "/resolve/", location="file:///etc/passwd"),)
    ),
    "unreachable": Broken("Unreachable", "HTTPS_PROXY", endpoint="http://127.0.0.1:9", is_retryable=True),
    "no endpoint": Broken("BadEndpoint", "HF_ENDPOINT", endpoint="huggingface"),
    "another server": Broken(
        "UnexpectedAnswer", "status 418", faults=(fault("status", "/api/models/org", status=418),)
    ),
    "deadline": Broken(
        "DeadlineExceeded", "--deadline-seconds", faults=(fault("trickle"),),
        limits=replace(SHORT, min_bytes_per_s=1.0), is_retryable=True,
    ),
    "no room": Broken("NoSpace", "GiB more", limits=replace(QUICK, spare_bytes=1 << 60)),
    "cache limit": Broken(
        "CacheLimit", "--cache-limit", limits=replace(QUICK, cache_bytes=9), is_retryable=True
    ),
}  # fmt: skip
