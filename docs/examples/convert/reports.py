import xml.etree.ElementTree as ET
from pathlib import Path

import pandas as pd

STATES = {"yes": "1", "no": "0", "uncertain": None}
rows = []
for path in sorted(Path("reports").glob("*.xml")):
    image = ET.parse(path).getroot()  # reads the encoding that the file declares
    states = {finding.get("name").lower(): STATES[finding.get("state")] for finding in image.iter("finding")}
    rows.append({"image": image.get("file"), "patient": image.find("patient").get("id")} | states)
names = ["cardiomegaly", "edema", "consolidation", "atelectasis", "pleural_effusion"]
table = pd.DataFrame(rows).reindex(columns=["image", "patient", *names])
table.to_csv("labels.csv", index=False)
