"""Commands about this machine: what it has, its cache of images, its key."""
