"""What is to be run: the schema of a pipeline, its algorithms, its device; no data, no training."""
