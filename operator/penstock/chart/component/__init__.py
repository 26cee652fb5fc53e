"""Values of the pods of operator and gateway, and the Deployment of both."""
