"""The binary tasks, their order and their names.

The order is that of the label vector everywhere: tables, tensors, checkpoints and messages.
"""

from __future__ import annotations

from typing import Final

#: How a disease is written in tables and plots; these are all that a site can label: the five, and the other nine of
#: ChestX-ray14.
TITLES: Final[dict[str, str]] = {
    name.replace(" ", "_").lower(): name
    for name in (
        "Cardiomegaly", "Edema", "Consolidation", "Atelectasis", "Pleural Effusion", "Infiltration", "Mass", "Nodule",
        "Pneumonia", "Pneumothorax", "Emphysema", "Fibrosis", "Pleural Thickening", "Hernia",
    )
}  # fmt: skip

#: The five tasks C0..C4 of the source paper's Tables 2 to 5, in its order: what a site or a study is about by default.
DISEASES: Final[tuple[str, ...]] = tuple(TITLES)[:5]
