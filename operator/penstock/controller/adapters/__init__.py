"""Places LoraAdapters on engines and rolls out their versions."""
