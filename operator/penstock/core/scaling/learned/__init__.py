"""Models that are fitted to metrics of engines, pods and requests, and the capacity of a replica."""
