"""What operator and gateway have in common: the values of their pods, and the Deployment."""
