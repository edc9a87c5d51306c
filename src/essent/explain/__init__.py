"""Looks into a model: which tokens matter to it, and which attention heads know."""
