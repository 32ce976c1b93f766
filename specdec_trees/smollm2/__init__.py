"""A real instruct model for every machine: SmolLM2-135M-Instruct, out of a wheel of the package index."""
