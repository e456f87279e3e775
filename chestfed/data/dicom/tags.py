"""The DICOM elements that chestfed reads, and the only place that opens DICOM files.

An allow-list (`allow_list.yaml`): what decoding needs (`PIXELS`), what tells of burned-in text (`BURNED_IN`), what a
site's YAML may name (`ROLES`). Everything else is skipped by the parser or dropped before anybody sees it: names,
addresses, dates, physicians, private elements, comments in the file meta information. Elements that name a patient or a
study are keys: they may group images, and stay in the site table.

What identifies a person is taken from the basic profile of DICOM PS3.15, Annex E.
"""

from __future__ import annotations

import difflib
import functools
import logging
import struct
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import yaml

from chestfed.core.errors import ImageError, is_environment_error

if TYPE_CHECKING:
    from pydicom.dataset import Dataset

_LIST: Final[Mapping[str, tuple[str, ...]]] = {
    part: tuple(tags.split())
    for part, tags in yaml.safe_load(Path(__file__).with_name("allow_list.yaml").read_text(encoding="utf-8")).items()
}
PIXELS, KEYS, IMAGE_KEYS = _LIST["pixels"], _LIST["keys"], _LIST["image_keys"]
DESCRIPTIONS: Final = _LIST["descriptions"]
OTHER_MODALITIES, BODY_PARTS = _LIST["other_modalities"], _LIST["body_parts"]
#: Whether the sender says that text is in the pixels; heights of overlays, which tell that there are any, not of what.
BURNED_IN: Final[tuple[str | int, ...]] = ("BurnedInAnnotation", *(0x60000010 + (plane << 17) for plane in range(16)))
#: Column of a site's YAML -> the elements that it may name.
ROLES: Final[Mapping[str, tuple[str, ...]]] = {
    "patient": KEYS,
    "study": KEYS,
    "view": DESCRIPTIONS,
    "split": DESCRIPTIONS,
    "findings": DESCRIPTIONS,
    "finding": DESCRIPTIONS,
    "keep": (*DESCRIPTIONS, "PresentationIntentType"),
    "sex": ("PatientSex",),
    "age": ("PatientAge",),
}

#: Errors of pydicom and its decoders -> what they come from; the first that fits.
_MEANS: Final[tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], str], ...]] = (
    (NotImplementedError, "an element or a compression of an unknown kind"),
    (zlib.error, "it cannot be decompressed: truncated or altered"),
    ((struct.error, EOFError, OSError), "it ends too early"),
    ((ValueError, OverflowError), "its pixels are truncated or do not match its header"),
    ((AttributeError, LookupError), "an element that its pixels need is missing or damaged"),
    (TypeError, "an element violates the standard"),
    (MemoryError, "it needs more memory than is available"),
    (BaseException, "its compressed image cannot be decoded: damaged or of an unknown kind"),
)


def refusal(role: str, tag: str) -> str | None:
    """Why a site's YAML may not name an element in `columns.<role>`; None if it may."""
    allowed = ROLES.get(role, ())
    if tag in allowed:
        return None
    if tag in KEYS:
        return (
            f"columns.{role}: '{tag}' identifies a patient or a study and may only group images, as "
            f"columns.patient or columns.study. Allowed for {role}: {', '.join(allowed)}"
        )
    head = f"columns.{role}: '{tag}' is not a DICOM element that may be read"
    if _identifies(tag):
        return (
            f"{head}: it may identify a person (DICOM PS3.15, Annex E, basic profile), and no site needs it. "
            f"Allowed for {role}: {', '.join(allowed)}"
        )
    close = difflib.get_close_matches(tag, allowed, n=1, cutoff=0.7)
    hint = f"did you mean '{close[0]}'?" if close else f"allowed for {role}: {', '.join(allowed)}"
    return f"{head}; {hint}"


def read(path: Path | str, tags: Sequence[str | int], *, pixels: bool = False) -> Dataset:
    """The elements `tags` of a file, all of the allow-list; with `pixels` those of `PIXELS` too.

    The parser skips all other elements; what it must pass through (sequences of undefined length) and the file meta
    information besides the transfer syntax are dropped. Errors are pydicom's own and may quote a header: read within
    `quiet`, and say of an error no more than `reason` does.

    Raises
    ------
    ValueError
        If a tag is not on the allow-list.
    """
    import pydicom

    known = {*PIXELS, *BURNED_IN, *IMAGE_KEYS, *(tag for of_role in ROLES.values() for tag in of_role)}
    if strange := [tag for tag in tags if tag not in known]:
        raise ValueError(f"not on the allow-list of DICOM elements: {strange}")
    names = (*tags, *(PIXELS if pixels else ()))
    dataset = pydicom.dcmread(path, specific_tags=[*_number_tags(names)], stop_before_pixels=not pixels)
    _keep(dataset, _number_tags((*names, "SpecificCharacterSet")))
    _keep(dataset.file_meta, _number_tags(("TransferSyntaxUID",)))
    _write_points(dataset)
    for name in ("ModalityLUTSequence", "VOILUTSequence") if pixels else ():
        for item in dataset.get(name) or ():
            _keep(item, _number_tags(_LIST["lut"]))
    dataset.preamble = bytes(128)
    return dataset


@functools.cache
def _number_tags(names: tuple[str | int, ...]) -> frozenset[int]:
    """The tags of keywords or numbers, which pydicom looks up slowly."""
    from pydicom.tag import Tag

    return frozenset(int(Tag(name)) for name in names)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence pydicom's log and warnings, which may quote header values."""
    logging.getLogger("pydicom").setLevel(logging.CRITICAL)
    with warnings.catch_warnings(action="ignore"):
        yield


@contextmanager
def raise_image_error() -> Iterator[None]:
    """`quiet`, and errors of damaged files as an `ImageError` without their words; errors of the machine pass."""
    with quiet():
        try:
            yield
        except ImageError:
            raise
        except BaseException as error:  # pydicom and its plugins raise many kinds; one in Rust panics past Exception
            panic = type(error).__name__ == "PanicException"
            if is_environment_error(error) or not (isinstance(error, Exception) or panic):
                raise
            raise ImageError(f"damaged or unsupported DICOM file: {reason(error)}", kind="damaged") from None


def reason(error: BaseException) -> str:
    """Cause of an error that a DICOM file has raised, in words of ours: its own may quote the header."""
    if isinstance(error, ImageError):  # ours: its words are known
        return str(error)
    if isinstance(error, OSError) and error.errno is not None:
        return error.strerror or type(error).__name__
    kind = type(error)
    name = kind.__name__ if kind.__name__[0].isupper() else f"{kind.__module__}.{kind.__name__}"
    return f"{next(words for kinds, words in _MEANS if isinstance(error, kinds))} ({name})"


def _write_points(dataset: Dataset) -> None:
    """Numbers with a decimal comma, which some systems write, with the point of the standard."""
    from pydicom.datadict import dictionary_VR
    from pydicom.dataelem import RawDataElement

    for tag in [tag for tag in dataset.keys()]:  # noqa: C416, SIM118 (a data set iterates over values)
        element = dataset.get_item(tag)
        if isinstance(element, RawDataElement) and b"," in (element.value or b"") and dictionary_VR(tag) == "DS":
            dataset[tag] = element._replace(value=element.value.replace(b",", b"."))


def _keep(dataset: Dataset, tags: Set[int]) -> None:
    for tag in [tag for tag in dataset.keys() if int(tag) not in tags]:  # noqa: SIM118 (a data set iterates over values)
        del dataset[tag]


def _identifies(tag: str) -> bool:
    """Whether an element is of those that the basic profile removes for what they tell of a person or a date."""
    from pydicom.datadict import dictionary_VR, tag_for_keyword

    number = tag_for_keyword(tag)
    if number is None:
        return False
    return dictionary_VR(number) in ("PN", "DA", "DT", "TM", "UI") or any(word in tag for word in _LIST["person"])
