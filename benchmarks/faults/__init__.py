"""What chestfed does when it is killed, or when files, settings, disks or models are not as they should be."""
