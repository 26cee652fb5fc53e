"""`penstock adapters`: where LoRA adapters are, and why."""
