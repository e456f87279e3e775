"""Image files beside those of the rows of a hospital's own table: what no row names, or what rows left out name."""

from __future__ import annotations

from chestfed.data.dicom.file_kinds import images_among
from chestfed.data.sites.config import SiteConfig
from chestfed.data.sites.folders import Folders
from chestfed.data.sites.label_files.text import composed
from chestfed.data.sites.opening import Survey


def describe_idle_images(config: SiteConfig, survey: Survey) -> list[str]:
    """One sentence that counts the image files below `table.images.roots` of no row that is read.

    Empty without any, and where rows have problems: their images may be among these.
    """
    if config.table is None or "images" in config.label_files or not survey.has_images or survey.problems:
        return []
    root, roots = survey.table.root, config.table.images.roots
    folders = Folders(root)
    files = {file for name in roots for file in folders.files("" if name == "." else f"{name.rstrip('/')}/")}
    images = {composed(file) for file in images_among(root, sorted(files))}
    if not (idle := images - {composed(str(image)) for image in survey.raw["image"].dropna()}):
        return []
    place = ", ".join(name for name in roots if name != ".") or "the site's root"
    return [f"{len(idle):,} of {len(images):,} image files in {place} are of no row that is read: not used"]
