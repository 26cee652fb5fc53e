"""Scrapes engines and gateways, and decides on the replicas of services."""
