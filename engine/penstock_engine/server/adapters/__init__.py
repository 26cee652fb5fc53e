"""LoRA adapters: their registry, folders, and host memory."""
