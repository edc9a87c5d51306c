"""Save and load encoders: stock sentence-transformers modules if they compute the same, and golden vectors."""
