"""Layers of transformers: attention on the paged cache, norms, projections, experts, embeddings."""
