"""A recipe's module as a folder: stock sentence-transformers modules where they compute the same, golden vectors."""
