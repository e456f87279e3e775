"""From image files to training batches: decode, resize, cache, augment, normalize."""
