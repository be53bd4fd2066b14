"""How the shipped extractor is made: texts with marked names, tuples, recipe, adapter. `make extractor` runs it."""
