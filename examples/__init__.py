"""The bundled sample, and how the shipped extractor is made: data, and the scripts that write it."""
