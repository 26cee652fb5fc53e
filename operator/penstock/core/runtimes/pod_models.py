"""Models of a pod: volume and path of each, and the arguments of the programs that fetch them."""

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.core.runtimes.paths import (
    DRAFT_MOUNT,
    MODEL_CACHE_MOUNT,
    MODEL_MOUNT,
    MODEL_SECRET_MOUNT,
)
from penstock.core.spec.service import (
    DRAFT_MODEL_VOLUME,
    ENGINE_PORT,
    MODEL_VOLUME,
    ServiceSpec,
)
from penstock_engine.contract.model_source import FETCHED, is_fetched

DRAFT_URI = "engine.speculative.model.uri"
TERMINATION_LOG = "/dev/termination-log"
# Time in which a model stays in the cache after its fetch, in seconds. `hold` starts after the pull of the
# engine's image, of some 10 GB.
HOLD_S = 1800
# Time limit of a fetch, in seconds. Its container is then restarted, and resumes the fetch.
FETCH_DEADLINE_S = 3600
# Index of the URI in the arguments of a container that fetches.
URI_ARGUMENT = 1
CLAIM_CACHE_FLAG, NODE_CACHE_FLAG = "--cache", "--node-cache"

# Schemes of the URIs of models that pods fetch, for the chart, which imports nothing of the engine.
FETCHED_SCHEMES = FETCHED
# Variables that an operator may give to all containers that fetch. None is a secret: pods show their values.
SOURCE_VARIABLES = (
    "HF_ENDPOINT", "HF_HUB_OFFLINE", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_SKIP_SIGNATURE",
    "GOOGLE_BASE_URL", "GOOGLE_SKIP_SIGNATURE", "AZURE_STORAGE_ENDPOINT", "HTTPS_PROXY", "NO_PROXY",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PodModel:
    """A model in a pod. field: path of its URI in the spec. volume: its volume. mount: the volume's path."""

    field: str
    uri: str
    volume: str
    mount: str

    @property
    def container(self) -> str:
        """Name of the init container that fetches it, if it is fetched."""
        return FETCH_CONTAINERS[self.volume]

    @property
    def argument(self) -> str:
        """The URI as an argument of a container."""
        return as_argument(self.uri)


# Name of the init container that fetches into a volume.
FETCH_CONTAINERS = {MODEL_VOLUME: "fetch-model", DRAFT_MODEL_VOLUME: "fetch-draft-model"}


def as_argument(uri: str) -> str:
    """A URI as an argument of a container, in which Kubernetes expands $(NAME)."""
    return uri.replace("$", "$$")


def has_cache(spec: ServiceSpec) -> bool:
    """Whether pods of the service mount a cache of fetched models."""
    return spec.model_cache_claim is not None or reads_node_cache(spec)


def reads_node_cache(spec: ServiceSpec) -> bool:
    """Whether pods mount the cache of their node: the service asks for it, and it is enabled."""
    return spec.uses_node_cache and spec.node_cache_path is not None


def _cache_flag(spec: ServiceSpec) -> str:
    """The flag that names the path of the cache: of a claim, or of the node."""
    return NODE_CACHE_FLAG if reads_node_cache(spec) else CLAIM_CACHE_FLAG


def fetched_models(spec: ServiceSpec) -> tuple[PodModel, ...]:
    """The models that pods of the service fetch."""
    return tuple(each for each in _models(spec) if is_fetched(each.uri))


def mounted_models(spec: ServiceSpec) -> tuple[PodModel, ...]:
    """The models in claims and folders of the node, which pods of the service mount."""
    return tuple(each for each in _models(spec) if not is_fetched(each.uri))


def fetch_args(spec: ServiceSpec, model: PodModel) -> list[str]:
    """Arguments of the container that fetches a model."""
    args = ["fetch", model.argument, f"--into={model.mount}", *secret_args(spec.model_secret)]
    args += cache_args(spec, MODEL_CACHE_MOUNT)
    if has_cache(spec):
        args.append(f"--hold-seconds={HOLD_S}")
    args.append(f"--deadline-seconds={FETCH_DEADLINE_S}")
    args += ["--host=$(POD_IP)", f"--port={ENGINE_PORT}"]
    return [*args, f"--termination-log={TERMINATION_LOG}"]


def hold_args(spec: ServiceSpec, models: tuple[PodModel, ...]) -> list[str]:
    """Arguments of the container that keeps models in the cache while the pod lives."""
    return ["hold", *(model.mount for model in models), f"{_cache_flag(spec)}={MODEL_CACHE_MOUNT}"]


def headers_args(spec: ServiceSpec) -> list[str]:
    """Arguments with which a preflight reads the headers of the models that are fetched."""
    models = fetched_models(spec)
    args = [f"--headers={model.mount}={model.argument}" for model in models]
    return [*args, *secret_args(spec.model_secret)] if args else []


def _models(spec: ServiceSpec) -> Iterator[PodModel]:
    yield PodModel("spec.model.uri", spec.model_uri, MODEL_VOLUME, MODEL_MOUNT)
    if (draft := spec.settings.get(DRAFT_URI)) is not None:
        yield PodModel(f"spec.{DRAFT_URI}", draft, DRAFT_MODEL_VOLUME, DRAFT_MOUNT)


def secret_args(secret: str | None) -> list[str]:
    """Arguments that name the credentials of a source. secret: name of their Secret; None: there are none."""
    return [] if secret is None else [f"--credentials={MODEL_SECRET_MOUNT}"]


def cache_args(spec: ServiceSpec, mount: str) -> Iterator[str]:
    """Arguments that name the service's cache, if it has one. mount: its path in the container."""
    if has_cache(spec):
        yield f"{_cache_flag(spec)}={mount}"
    if spec.model_cache_bytes is not None:
        yield f"--cache-limit-bytes={spec.model_cache_bytes}"
