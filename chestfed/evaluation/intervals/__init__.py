"""Confidence intervals: bootstrap, DeLong, degrees of freedom."""
