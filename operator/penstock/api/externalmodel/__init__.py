"""The schema of the ExternalModel."""
