"""What `benchmarks.federation` runs: a network of millions of numbers that takes no time, in chestfed and in Flower."""
