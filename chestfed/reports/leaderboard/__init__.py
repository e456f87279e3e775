"""Named benchmarks that others can join: their test splits, files of submissions, and the page that ranks them."""
