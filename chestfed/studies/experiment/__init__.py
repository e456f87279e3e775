"""Settings of an experiment: the schema of a pipeline, its algorithms, its device; no data, no training."""
