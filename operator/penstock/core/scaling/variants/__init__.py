"""Services on several kinds of replicas: the cheapest mix that holds a need."""
