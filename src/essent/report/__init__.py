"""Results as pictures. Nothing here sees an encoder or computes a score: results go in, files come out."""
