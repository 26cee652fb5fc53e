"""ValidatingAdmissionPolicy that refuses services whose pods would have rights that are not allowed.

The operator makes the same checks and reports a condition; with the policy, `kubectl apply` fails at once.
"""

from penstock.api.inferenceservice.kind import PLURAL
from penstock.chart.api_server.limits_cel import field_lists, list_variables, validations
from penstock.chart.names import OPERATOR, labels
from penstock.chart.tree import ABSENT, If, Json, ReleaseNamespace, Text, Tree, Value
from penstock.core.manifests.allowed_pods import NODE_CACHE_REFUSED
from penstock.core.spec.service import GROUP, NODE_CACHE, Object
from penstock.core.spec.template_limits import (
    ACCOUNT,
    ACCOUNT_REFUSED,
    ANNOTATIONS,
    ANNOTATIONS_PATH,
    POD,
    POD_PATH,
)

_POD_FIELDS = field_lists(POD, "pod_fields")
_API_VERSION = "admissionregistration.k8s.io/v1"
_DRAFT = ".spec.?engine.?speculative.?model.?uri.orValue('')"
_SOURCES = ".spec.?engine.?lora.?sources.orValue([])"
_CACHE_TYPE = ".spec.model.?cache.?type.orValue('')"
# An update that changes none of these is not checked: the service may be older than the policy.
_IS_CHANGED = (
    "oldObject == null "
    "|| object.spec.?template.orValue({}) != oldObject.spec.?template.orValue({}) "
    "|| object.spec.model.uri != oldObject.spec.model.uri "
    f"|| object{_DRAFT} != oldObject{_DRAFT} "
    f"|| object{_SOURCES} != oldObject{_SOURCES} "
    f"|| object{_CACHE_TYPE} != oldObject{_CACHE_TYPE}"
)
# CEL calls on a path that drop empty and `.` parts and end it with a slash, so that each prefix is a folder.
_NORMALIZED = "split('/').filter(part, !(part in ['', '.'])).map(part, '/' + part).join('') + '/'"
_HOST_PATH_MESSAGE = (
    "'the folders ' + variables.folders.join(', ') + ' on nodes are not all within the chart value "
    "operator.allowedHostPaths: use pvc:// URIs, or ask an administrator to allow them'"
)

_IS_ACCOUNT_ALLOWED = (
    f"!('{ACCOUNT}' in variables.pod) || type(variables.pod.{ACCOUNT}) == string "
    f"&& !variables.pod.{ACCOUNT}.contains('/') && "
    f"variables.accounts.exists(each, each == variables.pod.{ACCOUNT} "
    f"|| each == request.namespace + '/' + string(variables.pod.{ACCOUNT}))"
)


def admission_policy() -> list[Tree]:
    """The policy and its binding, for all namespaces or for `watchNamespace` only.

    Their names contain the release's namespace: a cluster may have several installations, each for one
    namespace.
    """
    metadata = {"name": Text.of(f"{OPERATOR}-", ReleaseNamespace()), "labels": labels(OPERATOR)}
    policy = {
        "apiVersion": _API_VERSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": metadata,
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [_services()],
                "namespaceSelector": If(
                    "watchNamespace",
                    {"matchLabels": {"kubernetes.io/metadata.name": Value("watchNamespace")}},
                ),
            },
            "matchConditions": [{"name": "changed", "expression": _IS_CHANGED}],
            "variables": _variables(),
            "validations": [
                {
                    "expression": "variables.folders.all(folder, "
                    f"variables.allowed.exists(each, folder.startsWith(each.{_NORMALIZED})))",
                    "messageExpression": _HOST_PATH_MESSAGE,
                },
                {
                    "expression": f"object{_CACHE_TYPE} != '{NODE_CACHE}' || variables.nodeCache",
                    "message": NODE_CACHE_REFUSED,
                },
                *validations(POD, "variables.pod", POD_PATH, _POD_FIELDS),
                *validations(ANNOTATIONS, "variables.annotations", ANNOTATIONS_PATH, {}),
                {"expression": _IS_ACCOUNT_ALLOWED, "message": ACCOUNT_REFUSED},
            ],
        },
    }
    binding = {
        "apiVersion": _API_VERSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": metadata,
        "spec": {"policyName": metadata["name"], "validationActions": ["Deny"]},
    }
    return [_if_restricted(policy), _if_restricted(binding)]


def _if_restricted(tree: Tree) -> Tree:
    """The tree, if the policy is enabled and templates are restricted."""
    restricted = If("operator.allowUnrestrictedTemplates", ABSENT, tree)
    return If("admissionPolicy.enabled", restricted)


def _services() -> Object:
    return {
        "apiGroups": [GROUP],
        "apiVersions": ["*"],
        "resources": [PLURAL],
        "operations": ["CREATE", "UPDATE"],
    }


def _variables() -> list[Object]:
    template = "object.spec.?template"
    return [
        {"name": "pod", "expression": f"{template}.?spec.orValue({{}})"},
        {
            "name": "annotations",
            "expression": f"{template}.?metadata.?annotations.orValue({{}})",
        },
        {
            "name": "folders",
            "expression": f"([object.spec.model.uri, object{_DRAFT}] + object{_SOURCES})"
            f".filter(uri, uri.startsWith('file://')).map(uri, uri.substring(7).{_NORMALIZED})",
        },
        *list_variables(_POD_FIELDS),
        {"name": "allowed", "expression": Text.of(Json("operator.allowedHostPaths"))},
        {"name": "nodeCache", "expression": Text.of(Json("nodeCache.enabled"))},
        {"name": "accounts", "expression": Text.of(Json("operator.allowedServiceAccounts"))},
    ]
