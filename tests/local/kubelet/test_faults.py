"""Faults in containers of a kubelet: the container's process, found by its control group."""

from penstock.local.faults import container_id

ID = "4f1c" * 16


def test_the_id_of_a_container_is_that_of_the_runtime() -> None:
    statuses = [
        {"name": "side", "containerID": "containerd://other"},
        {"name": "engine", "containerID": f"containerd://{ID}"},
    ]
    pod = {"status": {"containerStatuses": statuses}}
    assert container_id(pod, "engine") == ID


def test_a_container_that_has_not_started_has_no_id() -> None:
    assert container_id({"status": {}}, "engine") == ""
    assert container_id({"status": {"containerStatuses": [{"name": "engine"}]}}, "engine") == ""
    assert container_id({}, "engine") == ""
