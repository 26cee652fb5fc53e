"""LoRA adapters: their checkpoints, their weights in slots, and their part in a batch."""
