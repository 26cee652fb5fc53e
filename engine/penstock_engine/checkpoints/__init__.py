"""Opens the files of a checkpoint, and loads a rank's part of its parameters."""
