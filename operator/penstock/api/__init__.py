"""The Kubernetes API of Penstock: models, the schema made from them, and what comes of them."""
