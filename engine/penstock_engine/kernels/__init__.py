"""Triton kernels, operations in torch, and the choice between them."""
