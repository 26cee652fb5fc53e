"""How many replicas hold the objectives: demand, capacity, and the risk between them."""
