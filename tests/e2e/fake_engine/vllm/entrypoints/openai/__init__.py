"""A stand-in for vLLM where a test is about processes, not about answers."""
