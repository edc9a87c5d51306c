"""From texts to token ids: vocabulary, frame of a template, batches by tokens, counts, cache of words."""
