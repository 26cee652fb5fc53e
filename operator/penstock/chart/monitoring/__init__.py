"""Objects for the Prometheus operator and Grafana, the files in them, and their values."""
