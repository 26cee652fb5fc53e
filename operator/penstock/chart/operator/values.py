"""Values of the operator."""

from typing import Annotated, Any, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from penstock.chart.component.values import (
    AnyObject,
    Component,
    ValuesModel,
    prefer_other_zones,
)
from penstock.chart.names import OPERATOR
from penstock.core.runtimes.pod_models import SOURCE_VARIABLES


def _check_host_path(path: str) -> str:
    if ".." in path.split("/"):
        raise ValueError("must not contain '..'")
    return path


_HOST_PATH = r"^/[A-Za-z0-9@%+=:,._/-]*$"
# A folder of a node. No model can be below one with `..`, which URIs may not contain.
HostPath = Annotated[
    str,
    Field(pattern=_HOST_PATH, json_schema_extra={"not": {"pattern": r"/\.\.(/|$)"}}),
    AfterValidator(_check_host_path),
]
_NAME = "[a-z0-9]([-a-z0-9.]*[a-z0-9])?"
# NAME=VALUE of a variable of containers that fetch models.
SourceVariable = Annotated[str, Field(pattern=rf"^({'|'.join(SOURCE_VARIABLES)})=.+$")]
# NAME or NAMESPACE/NAME of a service account.
AccountName = Annotated[str, Field(pattern=rf"^({_NAME}/)?{_NAME}$")]


def _if_set(name: str, url: dict[str, Any]) -> dict[str, Any]:
    """Schema that restricts `url` where another value is set."""
    return {
        "if": {"properties": {name: {"minLength": 1}}},
        "then": {"properties": {"url": url}},
    }


class Prometheus(ValuesModel):
    """A Prometheus that scrapes the engines, used when the operator cannot scrape them."""

    model_config = ConfigDict(
        json_schema_extra={
            "allOf": [
                _if_set("tokenFile", {"pattern": "^https://"}),
                _if_set("caFile", {"minLength": 1}),
            ]
        }
    )

    url: str = Field(default="", pattern=r"^(https?://[^@\s]+)?$")
    """URL of the server. Empty: none."""
    token_file: str = Field(default="", pattern=r"^(/.*)?$")
    """File with a bearer token in the operator's pod. Needs a url with https."""
    ca_file: str = Field(default="", pattern=r"^(/.*)?$")
    """File with the server's CA certificate in the operator's pod."""

    @model_validator(mode="after")
    def _check_url(self) -> Self:
        if (self.token_file or self.ca_file) and not self.url:
            raise ValueError("tokenFile and caFile need a url")
        if self.token_file and not self.url.startswith("https://"):
            raise ValueError("tokenFile needs a url with https")
        return self


class Operator(Component):
    """The operator. One replica leads, the others stand by."""

    replicas: int = Field(default=2, ge=1)
    """Number of replicas."""
    resources: AnyObject = Field(
        default={"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}}
    )
    """Resources of the container."""
    affinity: AnyObject = Field(default=prefer_other_zones(OPERATOR))
    """Affinity of pods. By default they prefer zones without another of them; set podAntiAffinity to null
    for no preference."""
    termination_grace_period_seconds: int = Field(default=10, ge=1)
    """Time for the pod to end after SIGTERM, in seconds."""
    engine_image: str = ""
    """Image of engine pods and of the cache of nodes. Empty: REPOSITORY-engine:TAG with the repository and
    tag of `image`."""
    metrics_hosts: list[str] = Field(default=[])
    """HOST or HOST:PORT of each Prometheus that canaries' metric queries may use."""
    allow_unrestricted_templates: bool = False
    """Allow services any pod template, also one whose pods have more rights than the restricted Pod Security
    Standard gives: a user who may create a service may then create any pod."""
    allowed_host_paths: list[HostPath] = Field(default=[])
    """Folders of the nodes below which file:// models may be. Empty: no such models."""
    allowed_service_accounts: list[AccountName] = Field(default=[])
    """Service accounts that spec.template of services may name, each as NAME (in any namespace) or
    NAMESPACE/NAME, such as team-a/model-reader. Their tokens are not mounted."""
    source_variables: list[SourceVariable] = Field(default=[])
    """Variables of all containers that fetch models, and of the cache of nodes, as NAME=VALUE, such as
    HF_ENDPOINT=URL for a mirror of the hub. Put credentials into Secrets that services name."""
    prometheus: Prometheus = Prometheus()
