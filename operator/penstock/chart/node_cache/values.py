"""Values of the cache of models on each node."""

from typing import Annotated

from pydantic import AfterValidator, Field

from penstock.chart.component.values import AnyObject, PodLabels, PriorityClassName, ValuesModel
from penstock.chart.tree import BYTE_UNITS
from penstock.core.runtimes.pod_models import FETCHED_SCHEMES

# Error for a cache without allowed sources.
SOURCES_MISSING = (
    "nodeCache.allowedSources must name what nodes may fetch, such as hf://Qwen/ for the models of one "
    "organization, with nodeCache.enabled: every pod that mounts the cache can read all models in it"
)


def _check_folder(path: str) -> str:
    if not {".", ".."}.isdisjoint(path.split("/")):
        raise ValueError("must not contain '.' or '..'")
    return path


# A folder of a node, other than the node's root.
NodeFolder = Annotated[
    str,
    Field(
        pattern=r"^(/[A-Za-z0-9@%+=._-]+)+$",
        json_schema_extra={"not": {"pattern": r"/\.{1,2}(/|$)"}},
    ),
    AfterValidator(_check_folder),
]
# The beginning of URIs of fetched models, up to a slash: without a revision, a digest or an escape.
SourcePrefix = Annotated[
    str, Field(pattern=rf"^({'|'.join(FETCHED_SCHEMES)})://[A-Za-z0-9_./:\[\]-]*$")
]


class NodeCache(ValuesModel):
    """A cache of fetched models on each node, for services with spec.model.cache.type Node."""

    enabled: bool = False
    """Run a pod of the cache on each node, and let services use it. The pod mounts a folder of its node, as
    the pods of these services do: namespaces whose pod security level is baseline or restricted refuse both.
    Label the release's namespace pod-security.kubernetes.io/enforce: privileged."""
    path: NodeFolder = "/var/lib/penstock/models"
    """Folder of the node that has the models. Only the cache's pod, as root, may write to it. Another
    installation needs another folder."""
    size_limit: str = Field(default="", pattern=rf"^([1-9][0-9]{{0,5}}({'|'.join(BYTE_UNITS)}))?$")
    """Size limit of the cache of a node, such as 500Gi. The least recently used models that no pod uses are
    evicted to keep it. Empty: the size of its file system. If that is the kubelet's too, set a limit:
    kubelets evict pods from a node whose disk is nearly full."""
    allowed_sources: list[SourcePrefix] = Field(default=[])
    """Beginnings of the URIs that the cache fetches, up to a slash, such as hf://Qwen/ for the models of one
    organization, s3://models/public or, for all of the hub, hf://. Every pod that may mount the folder can
    read all models in it, so name only what all tenants may read. Models of other sources are fetched by pods
    themselves. Must be set with enabled."""
    credentials_secret: str = Field(default="", pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$")
    """Secret in the release's namespace with credentials of the sources, whose keys are those of a service's
    spec.model.secretRef. The cache fetches with them for all services. Empty: none."""
    resources: AnyObject = Field(
        default={"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "2Gi"}}
    )
    """Resources of the container."""
    extra_args: list[str] = Field(default=[])
    """Further command-line arguments of the container."""
    pod_labels: PodLabels = Field(default={})
    """Further labels of pods."""
    pod_annotations: dict[str, str] = Field(default={})
    """Annotations of pods."""
    node_selector: dict[str, str] = Field(default={})
    """Labels that a node must have for a cache. On other nodes pods fetch for themselves."""
    tolerations: list[AnyObject] = Field(
        default=[{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    )
    """Tolerations of pods: those of engines, whose nodes need the cache."""
    affinity: AnyObject = Field(default={})
    """Affinity of pods."""
    priority_class_name: PriorityClassName = ""
    """PriorityClass of pods, such as system-node-critical. With a lower priority than engines, they may be
    preempted by these."""
