"""Moves a service from one revision to the next: phases, events, target replicas, traffic shares."""
