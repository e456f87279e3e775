import numpy as np

from chestfed.plugins import ArrayPixels, Collection, CollectionSpec, Part


def read(folder, download):
    with np.load(folder / "spots.npz") as stored:
        part = Part(ArrayPixels(stored["images"]), stored["classes"].astype(np.int64), clients=stored["hospital"])
    return Collection("spots", classes=4, train=part, test=None)


SPOTS = CollectionSpec("spots", "Spots", read)
