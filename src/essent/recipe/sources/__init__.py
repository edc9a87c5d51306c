"""Sources of pooling: layers and their mix, static rows, tables by token, token averages over contexts."""
