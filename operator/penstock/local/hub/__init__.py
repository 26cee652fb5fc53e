"""Where pods of a local cluster find models of hf://: the Hugging Face hub, or a mirror on this machine."""
