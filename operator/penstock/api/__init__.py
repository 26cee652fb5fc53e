"""The Kubernetes API of Penstock: models, CRD schemas generated from them, conversion to core specs."""
