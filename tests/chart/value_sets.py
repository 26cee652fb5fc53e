"""Sets of values with which both renderers of the chart are compared."""

from typing import Any

IMAGE = {"image": {"repository": "registry.example/team/penstock", "tag": "v1"}}

PODS: dict[str, Any] = {
    "podLabels": {"team": "serving", "a.example/b": "true"},
    "podAnnotations": {"note": 'a: b # "quoted" & <escaped>'},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "topologySpread": {"topologyKeys": ["rack"], "whenUnsatisfiable": "DoNotSchedule"},
    "priorityClassName": "system-cluster-critical",
    "serviceAccount": {"annotations": {"role": "arn:x"}},
    "extraEnv": [{"name": "OTEL_EXPORTER_OTLP_HEADERS", "value": "a=b"}],
    "extraVolumes": [{"name": "token", "secret": {"secretName": "token"}}],
    "extraVolumeMounts": [{"name": "token", "mountPath": "/token", "readOnly": True}],
    "resources": {"limits": {"memory": None, "cpu": 2}, "requests": {"cpu": "1500m"}},
    "terminationGracePeriodSeconds": 120,
}

# Values of the cache of nodes that other pods have too.
NODE_CACHE_VALUES = (
    "podLabels", "podAnnotations", "nodeSelector", "tolerations", "affinity", "priorityClassName",
    "resources",
)  # fmt: skip

EXPOSED = {
    "type": "LoadBalancer",
    "externalTrafficPolicy": "Local",
    "annotations": {"lb": "internal"},
}
MONITORING = {
    "podMonitor": {"enabled": True, "interval": "5s", "labels": {"release": "prometheus"}},
    "prometheusRule": {
        "enabled": True,
        "labels": {"release": "prometheus"},
        "runbooksUrl": 'https://wiki.example/a?b="c"&d',
    },
    "dashboards": {"enabled": True, "annotations": {"grafana_folder": "Penstock"}},
}

PROMETHEUS = {
    "networkPolicy": {
        "enginesFrom": [
            {
                "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}},
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}},
            }
        ]
    }
}

# The CRDs are in the first set alone: they are most of the text.
VALUE_SETS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "digest": {"image": {"digest": "sha256:" + "a" * 64, "pullPolicy": "Always"}},
    "version_of_the_chart": {"image": {"tag": ""}},
    "pods": {
        "operator": PODS | {"extraArgs": ["--log-format=text"], "engineImage": "engines:v2"},
        "gateway": PODS
        | {"extraArgs": ["--max-waiting=5"], "corsOrigins": ["https://chat.example:8443", "*"]},
        "imagePullSecrets": [{"name": "registry"}, {"name": "other"}],
        "logLevel": "debug",
    },
    "no_spread": {"operator": {"topologySpread": {"topologyKeys": []}}},
    "autoscaled": {"gateway": {"autoscaling": {"enabled": True, "maxReplicas": 1000000}}},
    "host_network": {
        "gateway": {"hostNetwork": True, "port": 18080, "managementPort": 18082, "replicas": 1},
        "networkPolicy": {"enginesFrom": [{"ipBlock": {"cidr": "10.1.0.0/16", "except": ["10.1.9.0/24"]}}]},
    },
    "open_engines": {"monitoring": MONITORING, "networkPolicy": {"engines": False}},
    "exposed": {"gateway": {"service": EXPOSED}},
    "tls": {
        "gateway": {
            "tls": {"secretName": "gateway-certificate.a"},
            "allowedExternalUrls": ["https://api.example.com/v1", "http://10.0.0.1:8080"],
            "trustedProxies": ["10.0.0.0/8", "2001:db8::1"],
            "serviceAccountAudience": "https://models.example/a?b=c",
            "region": "eu-west",
        }
    },
    "quota_store": {
        "gateway": {
            "quotaStore": {"url": "redis://quotas.databases:6380/0", "passwordSecretName": "quotas"}
        }
    },
    "one_namespace": {"watchNamespace": "team-a", "monitoring": MONITORING} | PROMETHEUS,
    "one_namespace_alone": {"watchNamespace": "team-a", "tenantRoles": {"enabled": False}},
    "monitored": {"monitoring": MONITORING} | PROMETHEUS,
    "bare": {
        "networkPolicy": {"enabled": False},
        "apiPriority": {"enabled": False},
        "admissionPolicy": {"enabled": False},
        "userRoles": {"enabled": False},
    },
    "unrestricted_templates": {"operator": {"allowUnrestrictedTemplates": True}},
    "models_on_nodes": {"operator": {"allowedHostPaths": ["/models", "/mnt/a-b_c+d@e%f:g=h,i"]}},
    "source_mirror": {
        "operator": {"sourceVariables": ["HF_ENDPOINT=https://hub.example.com", "NO_PROXY=.svc,10.0.0.0/8"]}
    },
    "node_cache": {
        "nodeCache": {"enabled": True, "allowedSources": ["hf://Qwen/"]},
    },
    "node_cache_whole": {
        "nodeCache": {
            "enabled": True,
            "path": "/mnt/ssd_1/models",
            "sizeLimit": "500Gi",
            "allowedSources": ["hf://", "oci://registry.example:5000/models"],
            "credentialsSecret": "hub",
            "extraArgs": ["--deadline-seconds=7200"],
            **{name: PODS[name] for name in NODE_CACHE_VALUES},
        },
        "operator": {
            "sourceVariables": ["HF_ENDPOINT=https://hub.example.com/$(X)?a=b", "NO_PROXY=.svc"],
            "engineImage": "engines:v2",
        },
        "imagePullSecrets": [{"name": "registry"}],
        "networkPolicy": {"sourcePorts": [443, 3128]},
    },
    "node_cache_policies": {
        "nodeCache": {"enabled": True, "allowedSources": ["s3://models"], "sizeLimit": "2Ti"},
        "networkPolicy": {
            "dnsTo": [{"namespaceSelector": {}}],
            "extraEgress": [{"ports": [{"port": 4318, "protocol": "TCP"}]}],
        },
    },
    "batch": {"batch": {"enabled": True, "tokenSecretName": "batch-token"}, "monitoring": MONITORING}
    | PROMETHEUS,
    "batch_whole": {
        "batch": PODS
        | {
            "enabled": True,
            "tokenSecretName": "token.a",
            "replicas": 0,
            "storage": {"claim": {"size": "5Ti", "storageClassName": "fast"}},
            "extraArgs": ["--max-lines=64"],
            "terminationGracePeriodSeconds": 600,
        },
        "gateway": {"tls": {"secretName": "certificate"}, "port": 18080},
        "networkPolicy": {"gatewayFrom": [{"namespaceSelector": {}}]},
        "logLevel": "debug",
    },
    "batch_existing_claim": {
        "batch": {
            "enabled": True,
            "tokenSecretName": "batch-token",
            "storage": {"claim": {"existingClaim": "files"}},
        },
        "gateway": {"hostNetwork": True},
        "networkPolicy": {"enginesFrom": [{"ipBlock": {"cidr": "10.1.0.0/16"}}]},
    },
    "batch_bucket": {
        "batch": {
            "enabled": True,
            "tokenSecretName": "batch-token",
            "storage": {"s3": {"url": "s3://files.example/penstock/a_b", "secretName": "bucket"}},
        },
        "networkPolicy": {"storePorts": [443, 9000]},
    },
    "service_accounts": {
        "operator": {"allowedServiceAccounts": ["reader", "team-a/model-reader"]},
    },
    "prometheus": {
        "operator": {
            "metricsHosts": ["prometheus.monitoring:9090", "other"],
            "prometheus": {
                "url": "https://prometheus.monitoring:9091/x?a=1&b=2",
                "tokenFile": "/token/token",
                "caFile": "/ca.crt",
            },
        },
        "networkPolicy": {"prometheusPorts": [9092]},
    },
    "prometheus_url": {"operator": {"prometheus": {"url": "http://prometheus:9090"}}},
    "api_server": {
        "networkPolicy": {
            "apiServerTo": [{"ipBlock": {"cidr": "10.0.0.1/32"}}],
            "dnsTo": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}}}],
            "dnsPorts": [1053],
            "issuersTo": [{"ipBlock": {"cidr": "192.0.2.0/24"}}],
            "issuerPorts": [9443],
        }
    },
    "peers": {
        "networkPolicy": {
            "gatewayFrom": [{"namespaceSelector": {"matchLabels": {"ingress": "yes"}}}],
            "metricsFrom": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
            "extraEgress": [{"ports": [{"port": 4318, "protocol": "TCP"}]}],
        }
    },
    "traced": {
        "tracing": {
            "endpoint": "http://collector.observability:14318/otlp",
            "sampler": "parentbased_traceidratio",
            "samplerArg": "0.01",
        },
    },
    "traced_whole": {"tracing": {"endpoint": "https://[2001:db8::1]:4318"}},
    "traced_https": {"tracing": {"endpoint": "https://[2001:db8::1]"}},
    "traced_path": {"tracing": {"endpoint": "http://collector1/otlp:99"}},
}  # fmt: skip
for _name, _values in VALUE_SETS.items():
    if _name != "defaults":
        _values["crds"] = {"enabled": False}
