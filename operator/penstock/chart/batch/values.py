"""Values of the batch server and its store."""

from pydantic import Field

from penstock.chart.component.values import AnyObject, Component, ObjectName, ValuesModel
from penstock.chart.tree import BYTE_UNITS

# s: 20 for lines to be answered after SIGTERM, 5 to store results, 2 for requests of clients, and 3 to end.
MIN_GRACE_PERIOD_S = 30


class Claim(ValuesModel):
    """A PersistentVolumeClaim for files and results. It stays after an uninstall."""

    size: str = Field(default="20Gi", pattern=rf"^[1-9][0-9]{{0,5}}({'|'.join(BYTE_UNITS)})$")
    """Size of the volume. A tenant may store 10Gi."""
    storage_class_name: ObjectName = ""
    """StorageClass of the volume. Empty: the default one of the cluster."""
    existing_claim: ObjectName = ""
    """Claim in the release's namespace that is used in place of a new one."""


class Bucket(ValuesModel):
    """A bucket for files and results, in place of a claim."""

    url: str = Field(default="", pattern=r"^(s3://[a-z0-9][a-z0-9.-]*(/[\w./-]*)?)?$")
    """Where in which bucket: s3://BUCKET/PREFIX. Empty: a claim is used."""
    secret_name: ObjectName = ""
    """Secret in the release's namespace whose keys are variables: AWS_ENDPOINT_URL, AWS_REGION,
    AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY. Empty: the identity of the pod, by
    serviceAccount.annotations."""


class Storage(ValuesModel):
    """The store of files and results."""

    claim: Claim = Claim()
    s3: Bucket = Bucket()


class Batch(Component):
    """The batch server: OpenAI's API of files and batches, which the gateway then has."""

    enabled: bool = False
    """Run the batch server."""
    token_secret_name: ObjectName = ""
    """Secret in the release's namespace whose key `token` gateways and the batch server prove themselves to
    each other by, of 32 bytes or more. Must be set with enabled."""
    storage: Storage = Storage()
    replicas: int = Field(default=1, ge=0, le=1)
    """1, or 0 to pause all batches."""
    resources: AnyObject = Field(
        default={"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}
    )
    """Resources of the container."""
    termination_grace_period_seconds: int = Field(default=40, ge=MIN_GRACE_PERIOD_S)
    """Time for the pod to end after SIGTERM, in seconds: 20 more than --drain-timeout-s."""
