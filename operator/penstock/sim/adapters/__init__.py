"""Simulation of LoRA adapters on the engine pods of one service: placement, eviction and routing."""
