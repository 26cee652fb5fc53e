"""Versions of local binaries: those that are downloaded or built, and the oldest accepted where installed."""

KUBERNETES = "1.36.3"
ETCD = "3.6.5"
# The other programs of clusters with kubelets.
CNI_PLUGINS = "1.10.0"
CONTAINERD = "2.4.2"
COREDNS = "1.15.0"
KUBE_ROUTER = "2.1.0"
METRICS_SERVER = "0.9.0"

KUBERNETES_BINARIES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
BINARIES = (*KUBERNETES_BINARIES, "etcd")
# Binaries of a cluster, by the program that runs the pods of its nodes.
BINARIES_OF = {"agent": BINARIES, "kubelet": (*BINARIES, "kubelet", "kube-proxy")}

OLDEST = {
    "kube-apiserver": (1, 33),  # three minor versions back, as Kubernetes maintains releases
    "kube-controller-manager": (1, 33),
    "kube-scheduler": (1, 33),
    "kubectl": (1, 32),
    "kubelet": (1, 33),
    "kube-proxy": (1, 33),
    "etcd": (3, 5),
    "prometheus": (2, 42),  # Debian 12's package
    "promtool": (2, 42),
    "helm": (3, 18),  # the first with this validator of schemas
    "kubeconform": (0, 6),
    "actionlint": (1, 7),
    "otelcol": (0, 120),
}
