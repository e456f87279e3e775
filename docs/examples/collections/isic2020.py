import numpy as np
import pandas as pd
from PIL import Image

rows = pd.read_csv("ISIC_2020_Training_GroundTruth_v2.csv")
duplicates = pd.read_csv("ISIC_2020_Training_Duplicates.csv")  # keeps the first image of each pair
rows = rows[~rows["image_name"].isin(duplicates["image_name_2"])]
x = np.empty((len(rows), 224, 224, 3), np.uint8)
for row, name in enumerate(rows["image_name"]):
    x[row] = Image.open(f"train/{name}.jpg").convert("RGB").resize((224, 224), Image.Resampling.BILINEAR)
np.savez("isic2020.npz", x=x, y=rows["target"].to_numpy(), patient=rows["patient_id"].to_numpy(str))
