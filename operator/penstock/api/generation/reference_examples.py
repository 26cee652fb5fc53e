"""Examples at the head of the reference pages: what most objects of a kind set."""

EXAMPLES = {
    "InferenceService": """\
spec:
  model: {uri: "pvc://models/llama"}             # a folder with config.json, weights and a tokenizer
  resources: {limits: {cpu: 8, memory: 64Gi, nvidia.com/gpu: 1}}
  objectives: {ttft: 2s, tpot: 100ms}            # latencies that the scaling holds
  scaling: {minReplicas: 1, maxReplicas: 8}
  rollout: {strategy: Canary}                    # a change is judged before it gets all requests
""",
    "LoraAdapter": """\
apiVersion: serving.penstock.dev/v1alpha1
kind: LoraAdapter
metadata: {name: sql}
spec:
  serviceRef: {name: chat}
  model: {uri: "pvc://adapters/sql/v3"}
""",
    "ModelRoute": """\
apiVersion: serving.penstock.dev/v1alpha1
kind: ModelRoute
metadata: {name: chat}
spec:
  modelName: chat
  rules:
  - {name: beta, matches: [{headers: [{name: x-tenant, value: acme}]}], backendRefs: [{name: chat-beta}]}
  - {name: all, backendRefs: [{name: chat, weight: 90}, {name: chat-next, weight: 10}]}
""",
    "ExternalModel": """\
apiVersion: serving.penstock.dev/v1alpha1
kind: ExternalModel
metadata: {name: provider}
spec:
  url: https://api.example.com
  api: OpenAI
  model: large-model
  keySecretRef: {name: provider-key, key: apiKey}
  limits: {maxConcurrentRequests: 32, requestsPerMinute: 600}
  price: {promptPerMillionTokens: '0.50', outputPerMillionTokens: '1.50'}
""",
    "Tenant": """\
apiVersion: serving.penstock.dev/v1alpha1
kind: Tenant
metadata: {name: acme}
spec:
  identities:
  - {name: keys, type: APIKey, apiKey: {secretName: acme-keys}}   # made by `penstock keys create acme`
  access: [{namespace: team-a, modelNames: [chat]}]
  limits:
  - {name: per-minute, resource: Tokens, limit: 200000, unit: Minute}
""",
}
