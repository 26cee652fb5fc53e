"""Simulates services, engines and rollouts in virtual time, with the production decision code.

Imports core, api (conversion), clients (plotting), and the engine's core and contract. No cluster, no
tensors, no clock.
"""
