"""Checks of built images: which facts fail which check."""

from benchmarks.real_node.containers import restrictions
from benchmarks.real_node.image_checks import Rules, configuration_records, content_records
from benchmarks.real_node.pods import chart_pods

RULES = Rules("image", frozenset({"torch"}), frozenset({"gcc"}), max_bytes=100)
GOOD = {
    "uid": 65532, "gid": 0, "writable": ["/tmp"], "distributions": ["kopf"], "programs": ["gcc"],
    "setuid_files": [], "certificates": 140, "system_has_time_zones": True, "stale_bytecode": [],
}  # fmt: skip
LABELS = {
    f"org.opencontainers.image.{name}": "1"
    for name in ("title", "description", "licenses", "version", "revision", "created")
}
IMAGE = {"Size": 100, "Config": {"User": "65532:65532", "Labels": LABELS}}


def failed_contents(**facts: object) -> list[str]:
    records = content_records(RULES, GOOD | facts)
    return [record["check"] for record in records if not record["ok"]]


def failed_configuration(**fields: object) -> list[str]:
    records = configuration_records(RULES, "1", IMAGE | fields)
    return [record["check"] for record in records if not record["ok"]]


def test_a_fact_fails_its_check() -> None:
    assert failed_contents() == []
    assert failed_contents(writable=["/opt/penstock", "/tmp"]) == ["only /tmp is writable"]
    assert failed_contents(writable=[]) == ["only /tmp is writable"]
    assert failed_contents(distributions=["torch"]) == ["distributions"]
    assert failed_contents(distributions=["pip"]) == ["distributions"]
    assert failed_contents(programs=["curl"]) == ["programs"]
    assert failed_contents(setuid_files=["/usr/bin/su"]) == ["setuid programs"]
    assert failed_contents(certificates=0) == ["CA certificates"]
    assert failed_contents(system_has_time_zones=False) == ["time zones"]
    assert failed_contents(stale_bytecode=["a.py"]) == ["bytecode"]


def test_the_configuration_fails_its_check() -> None:
    assert failed_configuration() == []
    assert failed_configuration(Size=101) == ["size"]
    assert failed_configuration(Config={"User": "0", "Labels": LABELS}) == [
        "numeric user other than root"
    ]
    assert failed_configuration(Config={"User": "penstock", "Labels": LABELS}) == [
        "numeric user other than root"
    ]
    assert failed_configuration(Config={"User": "65532"}) == ["labels"]


def test_containers_have_the_restrictions_of_pods() -> None:
    pods = chart_pods("registry.example/penstock:v1")
    assert restrictions(pods["operator"]) == [
        "--user=65532", "--read-only", "--read-only-tmpfs=false", "--security-opt=no-new-privileges",
        "--cap-drop=ALL", "--tmpfs=/tmp:rw,mode=1777", f"--memory={512 << 20}",
    ]  # fmt: skip
    assert restrictions(pods["gateway"], "1000730000:0")[0] == "--user=1000730000:0"
