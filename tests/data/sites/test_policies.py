"""The policies of a YAML for any findings: what is positive, negative or missing, and how often it is trained on."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from chestfed.core.diseases import DISEASES
from tests.data.sites.releases.test_chexpert import HEADER, row
from tests.data.sites.small_sites import load_bundled, open_files

NAMES = {disease: names[0] for disease, names in load_bundled("chexpert").labels.items()}
CELLS = st.fixed_dictionaries({disease: st.sampled_from(("1.0", "0.0", "-1.0", "")) for disease in DISEASES})
#: What a word of a policy makes of a finding.
LABELS = {"positive": 1.0, "negative": 0.0, "missing": np.nan}
PER_DISEASE = st.fixed_dictionaries(
    {
        "uncertain": st.fixed_dictionaries({disease: st.sampled_from(sorted(LABELS)) for disease in DISEASES}),
        "blank": st.fixed_dictionaries({disease: st.sampled_from(("negative", "missing")) for disease in DISEASES}),
        "upsample": st.dictionaries(st.sampled_from(DISEASES), st.integers(0, 3)),
    }
)


@given(st.lists(CELLS, min_size=1, max_size=6), PER_DISEASE)
def test_findings_follow_the_policy(rows: list[dict[str, str]], policy: dict) -> None:
    text = HEADER
    for number, cells in enumerate(rows):
        path = f"CheXpert-v1.0/train/patient{number:05d}/study1/view1_frontal.jpg"
        text += row(path, labels={NAMES[disease]: cell for disease, cell in cells.items()})
    overrides = [f"{key}={{{', '.join(f'{d}: {v}' for d, v in words.items())}}}" for key, words in policy.items()]
    with TemporaryDirectory() as folder:
        table = open_files(Path(folder), "chexpert", {"train.csv": text}, *overrides)
    known = {"1.0": 1.0, "0.0": 0.0}
    expected = [
        [
            known[cells[disease]]
            if cells[disease] in known
            else LABELS[policy["uncertain" if cells[disease] else "blank"][disease]]
            for disease in table.diseases
        ]
        for cells in rows
    ]
    np.testing.assert_array_equal(table.labels(), np.array(expected, np.float32))
    copies = [
        1 + sum(policy["upsample"].get(d, 0) for d, label in zip(table.diseases, values, strict=True) if label == 1)
        for values in expected
    ]
    assert table.frame["repeats"].tolist() == copies
