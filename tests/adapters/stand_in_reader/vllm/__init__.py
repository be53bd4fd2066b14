"""A stand-in for vLLM where a test is about what is done with answers."""
