"""Health of an object by GitOps tools: a port of Flux's kstatus, and the script for Argo CD."""

from pathlib import Path

import lupa
import yaml

ROOT = Path(__file__).parents[3]
PREFIX = "resource.customizations.health.serving.penstock.dev_"


def kstatus(body):
    """The status of a custom resource by the rules of kstatus (cli-utils, generic.go and status.go)."""
    metadata, status = body["metadata"], body.get("status", {})
    if "deletionTimestamp" in metadata:
        return "Terminating"
    observed = status.get("observedGeneration")
    if observed is not None and observed != metadata["generation"]:
        return "InProgress"
    conditions = status.get("conditions", [])
    for condition in conditions:  # the first one decides
        if condition["type"] == "Reconciling" and condition["status"] == "True":
            return "InProgress"
        if condition["type"] == "Stalled" and condition["status"] == "True":
            return "Failed"
    ready = [condition["status"] for condition in conditions if condition["type"] == "Ready"]
    return "InProgress" if ready and ready[0] != "True" else "Current"


def argo_health(body):
    """The health of a service or a route by `examples/argo-cd-health.yaml`, run by a Lua interpreter."""
    config = yaml.safe_load((ROOT / "examples/argo-cd-health.yaml").read_text())
    lua = lupa.LuaRuntime()
    check = lua.eval(f"function(obj) {config['data'][PREFIX + body['kind']]} end")
    return check(lua.table_from(body, recursive=True))["status"]
