"""The admission policy with which the API server refuses services whose pods would gain rights.

The operator refuses the same with a condition: this tells it to the user at once.
"""

from penstock.api.v1alpha1 import PLURAL
from penstock.chart.limits_cel import field_lists, list_variables, validations
from penstock.chart.names import OPERATOR, labels
from penstock.chart.tree import ABSENT, If, Json, ReleaseNamespace, Text, Tree, Value
from penstock.core.spec.service import GROUP, Object
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
# A service that has been there before the policy may be changed in everything else.
_IS_CHANGED = (
    "oldObject == null "
    "|| object.spec.?template.orValue({}) != oldObject.spec.?template.orValue({}) "
    "|| object.spec.model.uri != oldObject.spec.model.uri "
    f"|| object{_DRAFT} != oldObject{_DRAFT}"
)
# The folders of a path, each with a slash before it, and a slash at the end.
_FOLDERS = "split('/').filter(part, !(part in ['', '.'])).map(part, '/' + part).join('') + '/'"
_HOST_PATH_MESSAGE = (
    "'the models are in ' + variables.folders.join(', ') + ' of nodes, and operator.allowedHostPaths of the "
    "chart does not contain all of it: use pvc://CLAIM/PATH, or have the folder allowed'"
)

_IS_ACCOUNT_ALLOWED = (
    f"!('{ACCOUNT}' in variables.pod) || type(variables.pod.{ACCOUNT}) == string "
    f"&& !variables.pod.{ACCOUNT}.contains('/') && "
    f"variables.accounts.exists(each, each == variables.pod.{ACCOUNT} "
    f"|| each == request.namespace + '/' + string(variables.pod.{ACCOUNT}))"
)


def admission_policy() -> list[Tree]:
    """The policy and its binding, which is for all namespaces, or for that of `watchNamespace`.

    The names have the namespace, because an installation for one namespace may be one of several.
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
                "namespaceSelector": If("watchNamespace", _watched()),
            },
            "matchConditions": [{"name": "changed", "expression": _IS_CHANGED}],
            "variables": _variables(),
            "validations": [
                {
                    "expression": "variables.folders.all(folder, "
                    f"variables.allowed.exists(each, folder.startsWith(each.{_FOLDERS})))",
                    "messageExpression": _HOST_PATH_MESSAGE,
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
    return [_unless_lifted(policy), _unless_lifted(binding)]


def _unless_lifted(tree: Tree) -> Tree:
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


def _watched() -> Object:
    return {"matchLabels": {"kubernetes.io/metadata.name": Value("watchNamespace")}}


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
            "expression": f"[object.spec.model.uri, object{_DRAFT}]"
            f".filter(uri, uri.startsWith('file://')).map(uri, uri.substring(7).{_FOLDERS})",
        },
        *list_variables(_POD_FIELDS),
        {"name": "allowed", "expression": Text.of(Json("operator.allowedHostPaths"))},
        {"name": "accounts", "expression": Text.of(Json("operator.allowedServiceAccounts"))},
    ]
