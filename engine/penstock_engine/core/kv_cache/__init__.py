"""Blocks of the KV cache, on the device and in host memory: who holds them, and which prefixes they keep."""
