"""The objects that install Penstock."""

from penstock.chart.names import GATEWAY, OPERATOR
from penstock.chart.system import system_manifests
from penstock.core.observed.label_selector import selects


def test_drains_take_one_gateway_and_one_operator_at_a_time() -> None:
    made = system_manifests("image", gateway_port=80, host_network=False, replicas=2)
    by_kind = {(each["kind"], each["metadata"]["name"]): each for each in made}
    for name in (OPERATOR, GATEWAY):
        template = by_kind["Deployment", name]["spec"]["template"]
        guarded = by_kind["PodDisruptionBudget", name]["spec"]
        assert guarded["maxUnavailable"] == 1
        assert selects(guarded["selector"], template["metadata"]["labels"])
        (term,) = template["spec"]["affinity"]["podAntiAffinity"][
            "preferredDuringSchedulingIgnoredDuringExecution"
        ]
        assert term["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
        other = next(each for each in (OPERATOR, GATEWAY) if each != name)
        others = by_kind["Deployment", other]["spec"]["template"]["metadata"]["labels"]
        assert not selects(guarded["selector"], others)
        assert not selects(term["podAffinityTerm"]["labelSelector"], others)
