"""The judge of a canary: blocks of evidence in, a verdict and its sentence out."""
