"""The HorizontalPodAutoscaler of Kubernetes, as a baseline."""
