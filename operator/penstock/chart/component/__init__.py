"""Values of the pods of operator, gateway and batch server, and the Deployment of each."""
