"""LoRA adapters of a service: their copies on engine pods, and the choice of a pod for a request."""
