"""Tools for research; the core never imports this package."""
