"""Save and load encoders: standard sentence-transformers modules if they compute the same, and golden vectors."""
