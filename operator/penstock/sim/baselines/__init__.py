"""Scaling rules of other projects, as baselines for the simulator."""
