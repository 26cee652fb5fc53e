"""Getting the binaries: what is verified, and what the build is told."""

import hashlib

import pytest

from penstock.local.download import DownloadFailed, verify
from penstock.local.gobuild import kubernetes_go_mod, kubernetes_tools_go


def test_a_wrong_checksum_is_refused() -> None:
    good = hashlib.sha256(b"binary").hexdigest()
    verify(b"binary", f"{good}  kubectl", "kubectl")
    with pytest.raises(DownloadFailed, match="does not match"):
        verify(b"other", good, "kubectl")
    with pytest.raises(DownloadFailed):
        verify(b"binary", "", "kubectl")


def test_staged_libraries_become_modules_of_the_same_release() -> None:
    upstream = "replace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n\tother => ../x\n)\n"
    text = kubernetes_go_mod(upstream, "1.36.3")
    assert "replace k8s.io/api => k8s.io/api v0.36.3" in text
    assert "other" not in text
    assert "kube-scheduler" in kubernetes_tools_go()
