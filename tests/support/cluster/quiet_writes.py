"""Counts what Penstock writes to the API server while nobody changes a Ready service."""

import asyncio

from tests.support.cluster.audit import AuditEntry, AuditLog, service_account_user, writes_by

from penstock.chart.names import GATEWAY, NAMESPACE, OPERATOR
from penstock.demo.stage import Stage

ACCOUNTS = (service_account_user(OPERATOR), service_account_user(GATEWAY))


async def writes_while_quiet(stage: Stage, service: str, *, seconds: float) -> list[AuditEntry]:
    """Writes of the operator and the gateway, without Leases, while a Ready service is unchanged.

    Services of other namespaces do not count. The service gets an annotation and the operator's pod is
    replaced: both cause a full reconcile, and neither changes the desired state.
    """
    log = AuditLog(stage.cluster)
    since = log.position()
    stage.kubectl("annotate", "psvc", service, f"note=at-{since}")
    await asyncio.sleep(seconds / 2)
    operator = ("-n", NAMESPACE, "-l", f"app.kubernetes.io/name={OPERATOR}")
    stage.kubectl("delete", "pod", *operator, "--wait=false")
    await asyncio.sleep(seconds / 2)
    quiet = {"", NAMESPACE, "default"}
    return [w for w in writes_by(ACCOUNTS, log.entries(since)) if w.namespace in quiet]
