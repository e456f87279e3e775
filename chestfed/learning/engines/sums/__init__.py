"""Sums of integers: the same bits with masks and without."""
