"""Keys of objects, and identifiers of files and batches."""

import re
import uuid

# Folder of requests while the cluster has no Tenant. Names of Tenants do not begin with an underscore.
NO_TENANT = "_open"
TENANTS = "tenants/"
# Name of a Tenant, as Kubernetes allows it.
TENANT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def new_file_id() -> str:
    return f"file-{uuid.uuid4().hex}"


def new_batch_id() -> str:
    return f"batch_{uuid.uuid4().hex}"


def new_line_id() -> str:
    return f"batch_req_{uuid.uuid4().hex}"


def file_record(tenant: str, file_id: str) -> str:
    """Key of what is known of a file."""
    return f"{_folder(tenant)}files/{file_id}.json"


def file_content(tenant: str, file_id: str) -> str:
    return f"{_folder(tenant)}files/{file_id}.jsonl"


def batch_record(tenant: str, batch_id: str) -> str:
    """Key of the state of a batch."""
    return f"{_folder(tenant)}batches/{batch_id}.json"


def journal(tenant: str, batch_id: str) -> str:
    """Prefix of the results of lines of a batch that runs."""
    return f"{_folder(tenant)}batches/{batch_id}/"


def segment(tenant: str, batch_id: str, number: int) -> str:
    """Key of a part of these results."""
    return f"{journal(tenant, batch_id)}{number:08d}"


def _folder(tenant: str) -> str:
    assert not tenant or TENANT_NAME.fullmatch(tenant)
    return f"{TENANTS}{tenant or NO_TENANT}/"
