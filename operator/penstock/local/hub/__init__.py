"""The source of hf:// models on a local cluster: the Hugging Face hub, or a mirror on this machine."""
