import pandas as pd

CHOICES = {"Cardiomegaly": "cardiomegaly", "Pleural effusion": "pleural_effusion"}
export = pd.read_csv("redcap.csv", dtype=str)
table = export.rename(columns={"Record ID": "patient", "Image file": "image"})[["image", "patient"]]
for disease in ["cardiomegaly", "edema", "consolidation", "atelectasis", "pleural_effusion"]:
    table[disease] = None
for choice, disease in CHOICES.items():  # an incomplete record has no label
    value = export[f"Findings (choice={choice})"].map({"Checked": "1", "Unchecked": "0"})
    table[disease] = value.where(export["Complete?"] == "Complete")
table.to_csv("labels.csv", index=False)
