"""Alert rules of Prometheus for the services, the engines, the gateways and the operator."""
