"""Simulations: the same decisions as in a cluster, on drawn events."""
