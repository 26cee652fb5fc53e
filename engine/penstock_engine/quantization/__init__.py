"""Quantized weights and KV caches: formats of checkpoints, packing, and products."""
