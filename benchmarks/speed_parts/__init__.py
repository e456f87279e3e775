"""The parts of `python -m benchmarks`: each measures what chestfed does beside what others do, in one run."""
