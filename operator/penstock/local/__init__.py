"""A real Kubernetes control plane and a node agent, as plain processes on Linux."""
