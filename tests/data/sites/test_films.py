"""The sites of the open films: on small files in their layouts, and on the real ones where they are at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chestfed.data.sites import load_site_config, open_site
from tests.data.sites.small_sites import CONFIGS, column, open_files

HANNOVER = "patient_id,image_id,sex,modality,projection\naa,i1,f,CR,pa\naa,i2,m,DX,ap\n"
ACTUALMED = """patientid,sex,age,finding,view,imagename
A1,,,COVID-19,PA,x.png
A2,F,60,No finding,AP,y.png
A3,,,,PA,z.png
"""
COHEN = """patientid,sex,age,finding,view,modality,folder,filename
1,M,65,Pneumonia/Viral/COVID-19,PA,X-ray,images,a.jpeg
2,F,,Pneumonia/Bacterial,AP Supine,X-ray,images,b.jpg
3,,,No Finding,PA,X-ray,images,c.jpg
4,,,todo,PA,X-ray,images,d.jpg
5,,,Pneumonia,L,X-ray,images,e.jpg
6,,,Pneumonia,Axial,CT,volumes,f.nii.gz
"""


def test_every_film_of_hannover_is_positive(tmp_path: Path) -> None:
    table = open_files(tmp_path, "films/hannover", {"data.csv": HANNOVER, "png/i1.png": "", "png/i2.png": ""})
    assert column(table, "image") == ["png/i1.png", "png/i2.png"]
    assert column(table, "covid_19") == column(table, "pneumonia") == [1, 1]
    assert column(table, "view") == ["pa", "ap"]


def test_an_inconclusive_film_has_no_label(tmp_path: Path) -> None:
    files = {"metadata.csv": ACTUALMED, **dict.fromkeys(("images/x.png", "images/y.png", "images/z.png"), "")}
    assert column(open_files(tmp_path, "films/actualmed", files), "covid_19") == [1, 0, None]


def test_kinds_of_pneumonia_are_pneumonia(tmp_path: Path) -> None:
    files = {"metadata.csv": COHEN, **dict.fromkeys((f"images/{n}" for n in ("a.jpeg", "b.jpg", "c.jpg", "d.jpg")), "")}
    table = open_files(tmp_path, "films/cohen", {**files, "images/e.jpg": ""})
    assert column(table, "pneumonia") == [1, 1, 0, None]
    assert column(table, "covid_19") == [1, 0, 0, None]


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("site", "images", "patients", "pneumonia"),
    [("nih", 684, 463, 353), ("guangzhou", 5856, 3118, 4273), ("hannover", 243, 71, 243)],
)
def test_the_real_films_are_sites(site: str, images: int, patients: int, pneumonia: int) -> None:
    config = load_site_config(CONFIGS / "films" / f"{site}.yaml")
    data = Path(os.environ.get("CHESTFED_DATA", "/nowhere"))
    if not config.folder(data).is_dir():
        pytest.skip("no real films: set CHESTFED_DATA to the folder that holds them")
    table = open_site(config, data)
    assert (len(table.frame), table.frame["patient"].nunique()) == (images, patients)
    assert int(table.frame["pneumonia"].sum()) == pneumonia
