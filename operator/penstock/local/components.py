"""Command lines and configuration files of the control-plane components."""

import json
from collections.abc import Mapping
from pathlib import Path

from penstock.local.record import API_PORT, Cluster

ETCD_PORT, ETCD_PEER_PORT, KUBELET_PORT = 2379, 2380, 10250

# Several distributions enable it: setting blockOwnerDeletion needs a right on the owner.
ADMISSION = "OwnerReferencesPermissionEnforcement"
FRONT_PROXY = "front-proxy"  # name of the API server as a client of further API servers

# Logs requests without bodies: enough to count writes and to see which verbs RBAC needs.
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


def etcd(binary: Path, folder: Path, address: str) -> list[str]:
    """Build etcd's command. Both ports require client certificates: etcd access is root access."""
    pki = folder / "pki" / "etcd"
    client, peer = f"https://{address}:{ETCD_PORT}", f"https://{address}:{ETCD_PEER_PORT}"
    return [
        str(binary), f"--data-dir={folder}/etcd",
        f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        f"--cert-file={pki}/server.crt", f"--key-file={pki}/server.key",
        f"--trusted-ca-file={pki}/ca.crt", "--client-cert-auth",
        f"--peer-cert-file={pki}/server.crt", f"--peer-key-file={pki}/server.key",
        f"--peer-trusted-ca-file={pki}/ca.crt", "--peer-client-cert-auth",
        "--unsafe-no-fsync",  # the cluster's data need not survive a power cut
    ]  # fmt: skip


def apiserver(binary: Path, cluster: Cluster) -> list[str]:
    """Build kube-apiserver's command."""
    folder, address = cluster.folder, cluster.address
    pki = folder / "pki"
    return [
        str(binary), f"--etcd-servers=https://{address}:{ETCD_PORT}",
        f"--etcd-cafile={pki}/etcd/ca.crt",
        f"--etcd-certfile={pki}/etcd/client.crt", f"--etcd-keyfile={pki}/etcd/client.key",
        f"--bind-address={address}", f"--advertise-address={address}", f"--secure-port={API_PORT}",
        f"--tls-cert-file={pki}/apiserver.crt", f"--tls-private-key-file={pki}/apiserver.key",
        f"--client-ca-file={pki}/ca.crt", f"--token-auth-file={folder}/tokens.csv",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki}/sa.key",
        f"--service-account-signing-key-file={pki}/sa.key",
        f"--service-cluster-ip-range={cluster.service_range}",
        "--authorization-mode=Node,RBAC", "--anonymous-auth=false",
        "--allow-privileged=false",
        f"--kubelet-certificate-authority={pki}/ca.crt",
        f"--kubelet-client-certificate={pki}/apiserver.crt",
        f"--kubelet-client-key={pki}/apiserver.key",
        "--kubelet-preferred-address-types=InternalIP",
        f"--audit-policy-file={folder}/audit-policy.json",
        f"--audit-log-path={folder}/logs/audit.jsonl",
        *(_for_kubelets(pki) if cluster.node == "kubelet" else _for_node_agent()),
    ]  # fmt: skip


def _for_node_agent() -> list[str]:
    """Flags of the API server where pods reach it at its own address."""
    return [f"--enable-admission-plugins={ADMISSION}", "--endpoint-reconciler-type=none"]


def _for_kubelets(pki: Path) -> list[str]:
    """Flags of the API server for nodes with rights of their own, and for further API servers behind it."""
    return [
        f"--enable-admission-plugins={ADMISSION},NodeRestriction",
        "--enable-aggregator-routing=true",  # this machine has no kube-proxy
        f"--requestheader-client-ca-file={pki}/ca.crt",
        f"--requestheader-allowed-names={FRONT_PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={pki}/front-proxy.crt",
        f"--proxy-client-key-file={pki}/front-proxy.key",
        # Pods of a lost node are replaced after a minute; the default is five.
        "--default-unreachable-toleration-seconds=60",
        "--default-not-ready-toleration-seconds=60",
    ]


def controller_manager(binary: Path, folder: Path) -> list[str]:
    """Build kube-controller-manager's command."""
    return [
        str(binary), f"--kubeconfig={folder}/kubeconfig",
        "--secure-port=0",  # its health and metrics are not used
        f"--service-account-private-key-file={folder}/pki/sa.key",
        f"--root-ca-file={folder}/pki/ca.crt",
        "--use-service-account-credentials=true", "--leader-elect=false",
    ]  # fmt: skip


def scheduler(binary: Path, folder: Path) -> list[str]:
    """Build kube-scheduler's command."""
    return [
        str(binary), f"--kubeconfig={folder}/kubeconfig", "--secure-port=0",
        "--leader-elect=false",
    ]  # fmt: skip


def kubeconfig(server: str, certificate_authority: Path, user: Mapping[str, str]) -> str:
    """Write a kubeconfig as JSON, which is valid YAML. user: its token, or its certificate and key."""
    name, client = "penstock-local", "client"
    cluster = {"server": server, "certificate-authority": str(certificate_authority)}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": client, "user": dict(user)}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": client}}],
            "current-context": name,
        },
        indent=2,
    )


def tokens_csv(token: str) -> str:
    """Write the API server's token file, with one administrator."""
    return f'{token},admin,admin,"system:masters"\n'


def audit_policy() -> str:
    """Write the API server's audit policy."""
    return json.dumps(AUDIT_POLICY)
