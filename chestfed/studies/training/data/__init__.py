"""Data of a study: one frame per site, cut once into the images of clients and test sets."""
