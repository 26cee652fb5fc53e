"""Model architectures: a registry of families, their configurations, and the decoder that all share."""
