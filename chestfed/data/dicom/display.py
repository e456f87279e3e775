"""Kind of image, shape of a pixel, and which way is up, by the header of a DICOM file.

Sections are those of DICOM PS3.3. Messages name a value only if it is a defined term of the standard.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

import numpy as np

from chestfed.core.errors import ImageError, UnsuitableImage
from chestfed.data.dicom.tags import BODY_PARTS, OTHER_MODALITIES

if TYPE_CHECKING:
    from pydicom.dataset import Dataset

#: Vertical and horizontal size of a pixel. Pixel Aspect Ratio is only for images without a spacing (C.7.6.3.1.7).
_PIXEL_SIZES: Final = ("PixelSpacing", "ImagerPixelSpacing", "NominalScannedPixelSpacing", "PixelAspectRatio")
_SAME_SIZE: Final = 1.01
_LARGEST_ASPECT: Final = 4.0
_WORD: Final = re.compile(r"[A-Z]+")
#: A shutter that leaves less of the picture is a mistake.
_LEAST_SHOWN: Final = 0.1
#: Directions of Patient Orientation: left and right, head and foot, anterior and posterior.
_OPPOSITES: Final = dict(zip("LRHFAP", "RLFHPA", strict=True))


def refuse_unsuitable(dataset: Dataset, body_parts: Collection[str] | None, for_processing: bool) -> None:
    """Refuse images of another modality or body part (C.7.3.1.1), and films FOR PROCESSING (C.8.11.1).

    `body_parts` are accepted besides an empty value (None: all). Unknown modalities are accepted.

    Raises `UnsuitableImage`.
    """
    modality = _read_word(dataset, "Modality")
    if modality in OTHER_MODALITIES:
        raise UnsuitableImage(
            f"DICOM file of modality {modality}: a radiograph expected, such as CR or DX", kind="other modality"
        )
    if _read_word(dataset, "PresentationIntentType") == "FORPROCESSING" and not for_processing:
        raise UnsuitableImage(
            "DICOM file FOR PROCESSING: export the image FOR PRESENTATION, or accept such files by "
            "pictures.for_processing: true in the site's YAML",
            kind="for processing",
        )
    if body_parts is not None:
        _refuse_other_part(dataset, {*map(_normalize, body_parts)})


def _refuse_other_part(dataset: Dataset, accepted: set[str]) -> None:
    """Accepted are an empty value, and an accepted part beside words that are no parts, as in PORT CHEST."""
    part = _read_word(dataset, "BodyPartExamined")
    words = {_normalize(word) for word in _WORD.findall(str(dataset.get("BodyPartExamined") or "").upper())}
    if not part or part in accepted or (words & accepted and not (words - accepted) & {*BODY_PARTS}):
        return
    if part in BODY_PARTS:
        name, advice = part, f"[CHEST, {part}]"
    else:
        name, advice = "not a term of the standard", "with the word that pydicom.dcmread(FILE).BodyPartExamined shows"
    raise UnsuitableImage(
        f"DICOM file of another body part (Body Part Examined: {name}): remove the row, or accept the body part by "
        f"pictures.body_parts in the site's YAML, {advice}",
        kind="other body part",
    )


def read_pixel_aspect(dataset: Dataset) -> float:
    """Height of a pixel divided by its width; 1 for a difference below 1%, and without a usable value.

    Raises `ImageError` if it is beyond 4 or 1/4.
    """
    for keyword in _PIXEL_SIZES:
        sizes = dataset.get(keyword) or ()
        if isinstance(sizes, str) or not hasattr(sizes, "__len__") or len(sizes) != 2:
            continue
        height, width = (float(size or 0) for size in sizes)
        if not (0 < height < math.inf and 0 < width < math.inf):
            continue
        if max(height / width, width / height) > _LARGEST_ASPECT:
            raise ImageError(
                f"DICOM file whose pixels are more than {_LARGEST_ASPECT:g} times as long as wide", kind="damaged"
            )
        return height / width if max(height / width, width / height) >= _SAME_SIZE else 1.0
    return 1.0


def turn_upright(gray: np.ndarray, dataset: Dataset) -> np.ndarray:
    """Gray levels `[h, w]`, head up and, in a frontal film, the patient's left on the right (C.7.6.1.1.1).

    The first letter of each value of Patient Orientation counts. A lateral film is rotated and never mirrored. Without
    an orientation the same array is returned.

    Raises `ImageError` if the orientation is not that of a frontal or lateral film.
    """
    directions = dataset.get("PatientOrientation") or ()
    if not any(directions):
        return gray
    values = [directions] if isinstance(directions, str) else list(directions)
    row, column = [str(value)[:1] for value in values] if len(values) == 2 else ("", "")
    letters = "".join(map(str, values))
    if not {*letters} <= {*_OPPOSITES} or len({row, column} & {*"HF"}) != 1 or not {row, column} & {*"LRAP"}:
        raise ImageError(
            "DICOM file whose Patient Orientation is not that of a frontal or lateral image", kind="unsupported"
        )
    while column != "F":
        gray, row, column = np.rot90(gray), column, _OPPOSITES[row]
    return np.ascontiguousarray(gray[:, ::-1] if row == "R" else gray)


def is_lateral(dataset: Dataset) -> bool:
    """Whether Patient Orientation is that of a lateral film."""
    return any(str(direction)[:1] in "AP" for direction in dataset.get("PatientOrientation") or () if str(direction))


def find_shutter(dataset: Dataset, shape: tuple[int, ...]) -> np.ndarray | None:
    """Which pixels bool `[h, w]` a Display Shutter shows (C.7.6.11); None if it shows all, or nearly nothing.

    Rows and columns count from 1, the edges are shown. Of several shapes only what all show is shown.
    """
    import cv2

    forms = dataset.get("ShutterShape") or ()
    if not forms:
        return None
    height, width = shape[:2]
    shown = np.ones((height, width), bool)
    for form in [forms] if isinstance(forms, str) else forms:
        if form == "RECTANGULAR":
            names = ("UpperHorizontalEdge", "LowerHorizontalEdge", "LeftVerticalEdge", "RightVerticalEdge")
            edges = [dataset.get(f"Shutter{name}") for name in names]
            if None in edges:
                continue
            top, bottom, left, right = (int(str(edge)) for edge in edges)
            part = np.zeros_like(shown)
            part[max(0, top - 1) : max(0, bottom), max(0, left - 1) : max(0, right)] = True
        elif form == "CIRCULAR":
            center, radius = dataset.get("CenterOfCircularShutter"), dataset.get("RadiusOfCircularShutter")
            if center is None or radius is None or len(center) != 2:
                continue
            rows, columns = np.ogrid[1 : height + 1, 1 : width + 1]
            part = (rows - int(center[0])) ** 2 + (columns - int(center[1])) ** 2 <= int(radius) ** 2
        elif form == "POLYGONAL":
            points = np.array(dataset.get("VerticesOfThePolygonalShutter") or [], np.int32)
            if len(points) < 6 or len(points) % 2:
                continue
            corners = points.reshape(-1, 2)[:, ::-1] - 1
            part = cv2.fillPoly(np.zeros((height, width), np.uint8), [corners], 1).astype(bool)
        else:
            continue
        shown &= part
    return None if shown.all() or shown.mean() < _LEAST_SHOWN else shown


def _read_word(dataset: Dataset, keyword: str) -> str:
    return _normalize(str(dataset.get(keyword) or ""))


def _normalize(word: str) -> str:
    """Capital letters and digits of a word: "T-Spine" is TSPINE."""
    return "".join(filter(str.isalnum, word.upper()))
