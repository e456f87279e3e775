"""A study over real hospitals: each keeps its images, a server keeps the rounds. Built on Flower (extra `flower`)."""
