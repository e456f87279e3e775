"""The commands `chestfed site ...`, one file each."""
