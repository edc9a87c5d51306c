"""A recipe on a model: plan, module, static pooling, one pass for many recipes, cached vectors."""
