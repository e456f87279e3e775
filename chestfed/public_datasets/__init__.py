"""Public image collections: readers of the files as they are distributed, for the papers' binary tasks.

A collection has images and one class per image; what is positive, and who holds what, is decided elsewhere.
"""
