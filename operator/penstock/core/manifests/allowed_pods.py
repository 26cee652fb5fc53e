"""Checks a service's pods against the operator's limits: template, folders of the node, service account."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from penstock.core.manifests import restricted
from penstock.core.manifests.engine import own_pods
from penstock.core.manifests.model_fetch import OWN_INIT_CONTAINERS
from penstock.core.manifests.pod_form import (
    pods_form_violation,
    template_form_violation,
    type_violation,
)
from penstock.core.observed.children import ObservedState
from penstock.core.runtimes.pod_models import mounted_models
from penstock.core.spec.adapter_sources import written_sources
from penstock.core.spec.model_location import ModelLocation, host_path_violation
from penstock.core.spec.revision import revision_of
from penstock.core.spec.service import ServiceSpec
from penstock.core.spec.template_limits import (
    POD_PATH,
    accounts_of,
    template_violation,
)

TEMPLATE_NOT_ALLOWED, HOST_PATH_NOT_ALLOWED = "TemplateNotAllowed", "HostPathNotAllowed"
NODE_CACHE_NOT_ENABLED = "NodeCacheNotEnabled"
NODE_CACHE_REFUSED = (
    "spec.model.cache.type is Node, but nodes have no cache (chart value nodeCache.enabled): name a claim in "
    "spec.model.cache.claimName instead, or ask an administrator to enable the cache of nodes"
)


@dataclass(frozen=True, slots=True)
class Violation:
    """A limit that a service's pods exceed: reason and message of the condition SpecValid."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class PodLimits:
    """Limits that the operator sets on the pods of services.

    allow_unrestricted_templates: any pod template is allowed whose pods have what Penstock puts into them.
    allowed_host_paths: folders of the nodes below which models and adapters may be. allowed_service_accounts:
    those that pods may use, each NAME or NAMESPACE/NAME. node_cache_path: folder of the cache of models on
    each node, which pods may read; None: nodes have no cache.
    """

    allow_unrestricted_templates: bool = False
    allowed_host_paths: tuple[str, ...] = ()
    allowed_service_accounts: tuple[str, ...] = ()
    node_cache_path: str | None = None

    def violation(self, spec: ServiceSpec) -> Violation | None:
        """The first limit that the service's pods exceed; None if they exceed none."""
        for field, uri in _uris(spec).items():
            refused = host_path_violation(field, uri, self.allowed_host_paths)
            if refused is not None:
                return Violation(HOST_PATH_NOT_ALLOWED, refused)
        if spec.uses_node_cache and self.node_cache_path is None:
            return Violation(NODE_CACHE_NOT_ENABLED, NODE_CACHE_REFUSED)
        spec = replace(spec, node_cache_path=self.node_cache_path)
        accounts = accounts_of(spec.namespace, self.allowed_service_accounts)
        if self.allow_unrestricted_templates:
            refused = (
                type_violation(spec.template)
                or template_form_violation(spec.template)
                or _form_violation(spec)
            )
        else:
            refused = (
                type_violation(spec.template)
                or template_violation(spec.template, accounts)
                or template_form_violation(spec.template)
                or _form_violation(spec)
                or _pods_violation(spec, accounts)
            )
        return None if refused is None else Violation(TEMPLATE_NOT_ALLOWED, refused)


DEFAULT_LIMITS = PodLimits()

# Recorded fields of a spec that decide whether its pods are allowed.
CHECKED_FIELDS = ("template", "model", "engine")


def is_of_running_revision(spec: ServiceSpec, observed: ObservedState) -> bool:
    """Whether template and models are those of the stable revision, which was allowed when it started.

    The recorded fields are compared too: another template may have the same short hash.
    """
    revision = revision_of(spec)
    return observed.stable == revision and any(
        each.revision == revision
        and each.pods is not None
        and not each.is_orphan
        and all(
            each.recorded_fields.get(part) == spec.recorded_fields.get(part)
            for part in CHECKED_FIELDS
        )
        for each in observed.history
    )


def _uris(spec: ServiceSpec) -> dict[str, str]:
    """Locations of the models and adapters that pods mount, by field."""
    models = {model.field: model.uri for model in mounted_models(spec)}
    return models | written_sources(spec.settings)


def _form_violation(spec: ServiceSpec) -> str | None:
    """Sentence about what the pods lack once the template is merged; None if they lack nothing."""
    return pods_form_violation(own_pods(spec, "", "image"))


def _pods_violation(spec: ServiceSpec, accounts: Collection[str]) -> str | None:
    """Which limit the pods exceed once the template is merged, as a sentence; None: none.

    A second check in case `template_violation` has an error: otherwise it finds nothing that the first one
    does not.
    """
    locations = map(ModelLocation.parse, _uris(spec).values())
    folders = [each.path for each in locations if each.claim is None]
    if spec.uses_node_cache and spec.node_cache_path is not None:
        folders.append(spec.node_cache_path)
    pods = own_pods(spec, "", "image")
    for pod in (pods.serve["spec"], pods.preflight):
        for field in restricted.broken_rules(pod, folders, accounts, OWN_INIT_CONTAINERS):
            return f"{POD_PATH} makes pods whose {field} has rights that are not allowed: remove what sets it"
    return None
