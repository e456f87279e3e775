"""Parts of `benchmarks.gpu`."""
