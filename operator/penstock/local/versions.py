"""The versions of the control plane, once."""

KUBERNETES = "1.36.3"
ETCD = "3.6.5"

KUBERNETES_BINARIES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
BINARIES = (*KUBERNETES_BINARIES, "etcd")
