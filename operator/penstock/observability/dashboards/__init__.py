"""Dashboards for Grafana 11 and later, built with the types of Grafana's own SDK."""
