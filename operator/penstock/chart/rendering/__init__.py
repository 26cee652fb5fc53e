"""Renders the install objects: as plain objects, as the Helm chart, and as the kustomize base."""
