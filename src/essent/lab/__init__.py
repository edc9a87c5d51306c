"""What researchers do and users of embeddings do not; the core never imports it."""
