"""Triton kernels, each with a reference in torch, and the choice between them."""
