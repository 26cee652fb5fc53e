"""Moves a service from one revision to the next: phases, events, target replicas and shares of traffic.

Imports observed and what is below it.
"""
