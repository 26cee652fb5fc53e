"""Simulates services, engines and rollouts in virtual time, with the production decision code.

Imports core, clients (paths of caches, plotting) and the engine's core; no cluster, no tensors, no clock.
"""
