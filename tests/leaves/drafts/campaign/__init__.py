"""Hospitals of many shapes whose truth is known, and what `chestfed site new` makes of them."""
