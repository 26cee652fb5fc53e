"""The node of a local cluster with the real kubelet, containerd and kube-proxy, in a network namespace."""
