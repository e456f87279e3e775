"""Public image collections for the papers' binary tasks: torchvision's data sets, `.npz` files, the partitions."""
