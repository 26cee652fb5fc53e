"""Services on several kinds of replicas: the cheapest mix that covers a need."""
