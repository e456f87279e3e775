"""Time and memory of opening a hospital's own table, in each of its forms.

Each case is written to a temporary folder and opened in a process of its own, whose time (imports left out) and largest
memory (imports included) are measured. `wide and images` looks each image up in two roots as well; the others read
labels only. The rows are drawn at random: no patients.
"""

from __future__ import annotations

import gzip
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.speed_parts.machine import alone, peak_of

NAMES = ("Cardiomegaly", "Edema", "Consolidation", "Atelectasis", "Effusion")
DISEASES = ("cardiomegaly", "edema", "consolidation", "atelectasis", "pleural_effusion")
COLUMNS = {
    "image": "File",
    "patient": "MRN",
    "study": "Study",
    "view": "View",
    "split": "Set",
    "sex": "Sex",
    "age": "Age",
}
HEADER = tuple(COLUMNS.values())
#: Case -> file and the columns that it needs besides.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "wide csv": ("labels.csv", {}),
    "wide csv and images": ("labels.csv", {"images": {"roots": ["new", "old"]}}),
    "wide csv and a joined file": ("labels.csv", {"join": "people.csv"}),
    "wide csv, patient from the path": ("labels.csv", {"from_path": r"(?P<patient>\d+)\.png$"}),
    "wide parquet": ("labels.parquet", {}),
    "wide xlsx": ("labels.xlsx", {}),
    "delimited tsv": ("labels.tsv", {"findings": "Findings"}),
    "list csv": ("labels.csv", {"findings": "Findings"}),
    "long csv.gz": ("labels.csv.gz", {"finding": "Finding"}),
    "readers csv, three each": ("labels.csv", {"reader": "Reader"}),
}


def measure() -> dict[str, Any]:
    """All forms with 100,000 rows, the first with a million, and 5,000 DICOM headers."""
    cases = [(case, 100_000) for case in CASES]
    cases[1:1] = [(cases[0][0], 1_000_000)]
    return {f"{case}, {rows:,} rows": _measured(case, rows) for case, rows in [*cases, ("dicom", 5_000)]}


def _measured(case: str, rows: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        _write(case, Path(folder), rows)
        return alone(_open, case, folder)


def _config(case: str) -> Any:
    from chestfed.data.sites import SiteConfig

    if case == "dicom":
        columns = {"patient": "PatientID", "view": "ViewPosition", "age": "PatientAge", "findings": "ImageComments"}
        table: dict[str, Any] = {"columns": columns, "codes": {"findings": _meanings()}}
        files = {"images": ["*/*.dcm"]}
    else:
        file, keys = CASES[case]
        columns = {**COLUMNS, **{key: keys[key] for key in ("findings", "finding", "reader") if key in keys}}
        columns = {name: told for name, told in columns.items() if "from_path" not in keys or name != "patient"}
        table = {"columns": columns, **{key: keys[key] for key in ("images", "from_path") if key in keys}}
        if {"findings", "finding"} & keys.keys():
            table["codes"] = {"findings": _meanings()}
        else:
            table["codes"] = {name: {"1": "positive", "0": "negative", "-1": "uncertain"} for name in NAMES}
        files = {"table": [file]}
        if "join" in keys:
            files["people"] = [keys["join"]]
            table["join"] = [{"file": "people", "key": ["Study", "ID"], "columns": ["Sex", "Age"]}]
    return SiteConfig.model_validate(
        {
            "site": "drawn",
            "title": "Drawn",
            "reader": "table",
            "root": ".",
            "label_files": files,
            "views": "all",
            **(
                {}
                if "findings" in table["codes"]
                else {"labels": {of: [name] for of, name in zip(DISEASES, NAMES, strict=True)}}
            ),
            "uncertain": "missing",
            "blank": "missing",
            "one_class": "all",
            "table": table,
        }
    )


def _meanings() -> dict[str, str]:
    """Each finding, denied and in doubt too, and `Normal`."""
    told = {"Normal": "normal"}
    for disease, name in zip(DISEASES, NAMES, strict=True):
        told |= {name: disease, f"no {name}": f"{disease} absent"}
        told |= {form.format(name): f"{disease} uncertain" for form in ("possible {}", "{}?")}
    return told


def _open(case: str, folder: str) -> dict[str, object]:
    from chestfed.data.sites import opening

    config = _config(case)
    # Labels only: nothing is looked for in folders.
    alone = None if case in ("dicom", "wide csv and images") else Path(folder, CASES[case][0])
    if case == "dicom":
        # The pool's process must not start others: headers one after the other.
        from chestfed.data.sites.tables import dicom_headers

        dicom_headers._SMALL_JOB = 1 << 30  # type: ignore[misc]
    started, worked = time.perf_counter(), time.process_time()
    table = opening.open_site(config, Path(folder), alone)
    seconds, cpu = time.perf_counter() - started, time.process_time() - worked
    return {
        "images": len(table.frame),
        "seconds": round(seconds, 2),
        "processor seconds": round(cpu, 2),
        "peak, MiB": peak_of(),
    }


def _write(case: str, folder: Path, rows: int) -> None:
    chance = random.Random(1)
    if case == "dicom":
        _write_headers(folder, rows, chance)
        return
    lines = list(_lines(case, rows, chance))
    path = folder / CASES[case][0]
    if path.suffix == ".xlsx":
        import openpyxl

        book = openpyxl.Workbook(write_only=True)
        sheet = book.create_sheet("Labels")
        for line in lines:
            sheet.append(line)
        book.save(path)
    elif path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(
            pa.table({name: [line[place] for line in lines[1:]] for place, name in enumerate(lines[0])}), path
        )
    else:
        sign = "\t" if path.suffix == ".tsv" else ","
        quote = '"{}"'.format if "list" in case else str
        text = "".join(sign.join([*line[:7], *map(quote, line[7:])]) + "\n" for line in lines).encode()
        path.write_bytes(gzip.compress(text, 1) if path.suffix == ".gz" else text)
    if "joined" in case:
        people = "".join(f"{line[2]},{line[5]},{line[6]}\n" for line in lines[1:])
        (folder / "people.csv").write_text(f"ID,Sex,Age\n{people}", encoding="utf-8")
    if "images" in case:
        for place, line in enumerate(lines[1:]):
            image = folder / ("old" if place % 2 else "new") / line[0]
            image.parent.mkdir(parents=True, exist_ok=True)
            image.touch()


def _lines(case: str, rows: int, chance: random.Random) -> Iterator[list[str]]:
    terms = case.startswith(("delimited", "list"))
    readers = case.startswith("readers")
    last = ["Findings"] if terms else ["Finding"] if "long" in case else [*(["Reader"] if readers else []), *NAMES]
    yield [*HEADER, *last]
    forms = ("{}", "no {}", "possible {}", "{}?")
    for row in range(rows):
        several = 3 if readers else 2 if "long" in case else 1
        image = row // several
        person = random.Random(image)
        patient = image // 3
        line = [f"p{patient // 100}/{image}.png", f"P{patient:06d}", f"S{image:07d}", person.choice(["PA", "AP"])]
        line += ["train" if patient % 5 else "test", person.choice("FM"), str(person.randrange(18, 95))]
        if terms:
            chosen = [chance.choice(forms).format(name) for name in chance.sample(NAMES, chance.randrange(4))] or [
                "Normal"
            ]
            yield [*line, "|".join(chosen) if case.startswith("delimited") else str(chosen)]
        elif "long" in case:
            yield [*line, NAMES[(image + row) % 5]]
        else:
            yield [
                *line,
                *([f"R{row % 3}"] if readers else []),
                *(chance.choice(["0", "0", "1", "-1", ""]) for _ in NAMES),
            ]


def _write_headers(folder: Path, files: int, chance: random.Random) -> None:
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import DigitalXRayImageStorageForPresentation, ExplicitVRLittleEndian

    for number in range(files):
        dataset = Dataset()
        dataset.file_meta = FileMetaDataset()
        dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
        dataset.SOPClassUID = dataset.file_meta.MediaStorageSOPClassUID = DigitalXRayImageStorageForPresentation
        dataset.SOPInstanceUID = dataset.file_meta.MediaStorageSOPInstanceUID = f"2.25.{number + 1}"
        dataset.PatientID, dataset.ViewPosition, dataset.PatientAge = f"P{number // 3}", "PA", "063Y"
        dataset.ImageComments = chance.choice(["Edema|no Effusion", "Normal", "Atelectasis?"])
        dataset.Rows = dataset.Columns = 64
        dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME2"
        dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation = 16, 12, 11, 0
        dataset.PixelData = bytes(2 * 64 * 64)
        path = folder / f"p{number // 100}" / f"{number}.dcm"
        path.parent.mkdir(exist_ok=True)
        dataset.save_as(path, enforce_file_format=True)
