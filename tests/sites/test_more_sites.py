"""The ready-made configurations of further public sets, each on small files in the layout of the release."""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from pydicom.dataset import Dataset

from chestfed.core.diseases import DISEASES
from chestfed.images.decode import decode
from chestfed.objectives.auc_margin import AucMargin
from chestfed.sites import SiteTable, load_site_config, open_site
from chestfed.sites.releases.padchest import tree
from chestfed.sites.tables.codebook import FINDING, read_book
from chestfed.sites.terms import normal, parse_meaning
from tests.cases import each
from tests.command_line import call
from tests.sites.own_tables import labels, save_dicom
from tests.sites.small_sites import CONFIGS, column, config_of, open_files, problems_of, write_files
from tests.sites.test_real_labels import data as data

N = None
MORE = CONFIGS / "more"
#: A gradient: bone is brighter than air, so that an inversion would be seen.
GREY = np.linspace(0, 255, 48 * 40).reshape(48, 40)


@dataclass(frozen=True)
class SmallSet:
    """Tables by name; images as `KIND PATH`; and, per image that is read, `PATH split view` and the five labels."""

    tables: dict[str, str]
    images: str
    expected: str

    def files(self, folder: Path) -> dict[str, str | bytes]:
        """The files by name; images are drawn in `folder`."""
        pairs = (line.split(maxsplit=1) for line in self.images.split("\n") if line.strip())
        return {**self.tables, **{path.strip(): draw(kind, folder) for kind, path in pairs}}


def draw(kind: str, folder: Path, gray: np.ndarray = GREY) -> bytes:
    """A PNG in a mode of Pillow, a JPEG, or a DICOM file such as `dcm12`; `inv14` stores it as a negative."""
    picture, held = Image.fromarray(gray.astype("u1")), io.BytesIO()
    if kind == "jpg":
        picture.save(held, "JPEG", quality=95)
    elif kind == "I;16":
        Image.fromarray((gray * 257).astype(np.uint16)).save(held, "PNG")
    elif kind[:3] not in ("dcm", "inv"):
        picture.convert(kind).save(held, "PNG")
    else:
        bits, negative = int(kind[3:]), kind.startswith("inv")
        stored = gray / 255 * (2**bits - 1)
        pixels = Dataset()
        pixels.Rows, pixels.Columns = gray.shape
        pixels.BitsStored, pixels.HighBit = bits, bits - 1
        pixels.PhotometricInterpretation = "MONOCHROME1" if negative else "MONOCHROME2"
        pixels.PixelData = (2**bits - 1 - stored if negative else stored).astype(np.uint16).tobytes()
        path = save_dicom(folder / "drawn.dcm", **{element.keyword: element.value for element in pixels})
        return path.read_bytes()
    return held.getvalue()


def lines(*rows: str) -> str:
    return "\n".join(rows) + "\n"


FIVE = "Cardiomegaly,Edema,Consolidation,Atelectasis,Pleural Effusion"
CHEXPERT = (
    "No Finding,Enlarged Cardiomediastinum,Cardiomegaly,Lung Lesion,Lung Opacity,Edema,Consolidation,Pneumonia,"
    "Atelectasis,Pneumothorax,Pleural Effusion,Pleural Other,Fracture,Support Devices"
)
NIH = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y]\n"
)
BOXES = "image_id,rad_ID,class_name,x_min,y_min,x_max,y_max,class_id"
READERS = ("4343882583", "4343882785", "4343880271", "4343883996", "4343883593")
CHESTDR = (
    "pleural_effusion,nodule,pneumonia,cardiomegaly,hilar_enlargement,fracture_old,fibrosis,aortic_calcification,"
    "tortuous_aorta,thickened_pleura,TB,pneumothorax,emphysema,atelectasis,calcification,pulmonary_edema,"
    "increased_lung_markings,elevated_diaphragm,consolidation"
)
PHOTO = "synthetic/digital/patient0000"
COVID = "sub-S0001/ses-E0001/mod-rx/sub-S0001_ses-E0001_run-1_bp-chest"
COVID_2 = "sub-S0002/ses-E0002/mod-rx/sub-S0002_ses-E0002_acq-2_run-1_bp-chest_vp-pa_cr.png"
COVID_3 = "sub-S0003/ses-E0003/mod-rx/sub-S0003_ses-E0003_run-1_bp-chest_vp-pa_dx.png"
CT = "sub-S0002/ses-E0002/mod-ct/sub-S0002_ses-E0002_run-1_bp-chest_ct.nii.gz"
BRAX = "images/id_{0}/Study_1.2.{1}/Series_1.3.{2}/image-1.4.{2}.png".format
MIMIC = "files/p1{0}/p1{0}000032/s5041426{0}/{1}".format


def of_readers(image: str, *counts: int) -> list[str]:
    """Rows of five radiologists, of whom some say YES to three diseases; and a sign behind a word, as in the file."""
    rows = []
    for place, reader in enumerate(READERS):
        said = [*("YES" if place < count else "NO" for count in counts), *["NO"] * 11, "NO" if place else "NO^"]
        rows.append(f"{image},{int(image[:8])},{reader},1,{','.join(said)}")
    return rows


def plus_row(path: str, view: str, order: str, sex: str) -> str:
    patient = path.split("/")[1]
    return f'{path},{path[:-3]}dcm,{view},{patient},{order},"Heart, big.",63.0,{sex},{path.split("/")[0]}'


PLUS = [f"train/patient0000{n}/study{s}/view{v}.jpg" for n, s, v in ((1, 1, "1_frontal"), (2, 3, "1_frontal"))]
PLUS += ["train/patient00002/study3/view2_lateral.jpg", "train/patient00003/study1/view1_frontal.jpg"]
PLUS += ["valid/patient64541/study1/view1_frontal.jpg"]
PLUS_LABELS = [[1.0, -1.0, N, N, 0.0], [-1.0, N, 1.0, -1.0, 1.0], [1.0] * 5, [0.0] * 5]

SETS = {
    "bimcv_covid19": SmallSet(  # a nameless view, a CT, and a session without labels
        {
            "derivatives/partitions.tsv": lines(
                "subject\tsession\tfilepath",
                *(
                    f"{file[:9]}\t{file[10:19]}\t./{file}"
                    for file in (f"{COVID}_vp-ap_dx.png", f"{COVID}_vp-ll_cr.png")
                ),
                *(f"{file[:9]}\t{file[10:19]}\t./{file}" for file in (f"{COVID}_cr.png", COVID_2, CT, COVID_3)),
            ),
            "derivatives/labels/labels_covid_posi.tsv": lines(
                "\tPatientID\tReportID\tLabels",
                "0\tsub-S0001\tses-E0001\t['COVID 19', 'viral pneumonia', 'loculated pleural effusion ']",
                "1\tsub-S0002\tses-E0002\t['unchanged', 'cardiomegaly']",
            ),
            "participants.tsv": lines(
                "participant\tmodality_dicom\tage\tgender", "sub-S0001\t['CR']\t[63]\tM", "sub-S0002\t['CR']\t[63]\tF"
            ),
        },
        f"I;16 {COVID}_vp-ap_dx.png\nI;16 {COVID}_vp-ll_cr.png\nI;16 {COVID}_cr.png\nI;16 {COVID_2}\nI;16 {COVID_3}",
        f"{COVID}_vp-ap_dx.png train ap 0 0 0 0 1\n{COVID_2} train pa 1 - - - -\n{COVID_3} train pa - - - - -",
    ),
    "brax": SmallSet(  # a PA and a lateral of one study, an old patient's AP, and a decubitus
        {
            "master_spreadsheet_update.csv": lines(
                f",DicomPath,PngPath,PatientID,PatientSex,PatientAge,AccessionNumber,StudyDate,{CHEXPERT},"
                "ViewPosition,Rows,Columns,Manufacturer",
                f"0,x,{BRAX('aa', 1, 1)},aa,F,65,9,20010101,,,1.0,,,-1.0,,,,,0.0,,,,PA,1,1,1",
                f"1,x,{BRAX('aa', 1, 2)},aa,F,65,9,20010101,,,1.0,,,-1.0,,,,,0.0,,,,L,1,1,1",
                f"2,x,{BRAX('bb', 2, 3)},bb,O,85 or more,9,20010102,,,-1.0,,,,1.0,,-1.0,,1.0,,,,AP,1,1,1",
                f"3,x,{BRAX('bb', 3, 4)},bb,O,85 or more,9,20010103,1.0,,,,,,,,,,,,,,LT-DECUB,1,1,1",
            )
        },
        "\n".join(f"I;16 {BRAX(*place)}" for place in (("aa", 1, 1), ("aa", 1, 2), ("bb", 2, 3), ("bb", 3, 4))),
        f"{BRAX('aa', 1, 1)} train pa 1 1 0 0 0\n{BRAX('bb', 2, 3)} train ap 0 0 1 1 1",
    ),
    "chestdr": SmallSet(
        {
            "chestdr_published_19d.csv": lines(
                f",img_id,{CHESTDR}",
                f"0,d1.png,1,{'0,' * 14}1,0,0,0",
                f"1,d2.png,0.0,0.0,0.0,1.0,{','.join(['0.0'] * 15)}",
            )
        },
        "L images/d1.png\nP images/d2.png",
        "images/d1.png train frontal 0 1 0 0 1\nimages/d2.png train frontal 1 0 0 0 0",
    ),
    "chestx_det": SmallSet(
        {
            "ChestX_Det_train.json": json.dumps(
                [
                    {"file_name": "1001.png", "syms": [], "boxes": [], "polygons": []},
                    {
                        "file_name": "1002.png",
                        "syms": ["Effusion", "Effusion", "Mass"],
                        "boxes": [[799, 666, 937, 761]] * 3,
                    },
                ]
            ),
            "ChestX_Det_test.json": json.dumps([{"file_name": "36346.png", "syms": ["Cardiomegaly", "Consolidation"]}]),
        },
        "L train/1001.png\nRGB train/1002.png\nL test/36346.png",
        "train/1001.png train frontal 0 - 0 0 0\ntrain/1002.png train frontal 0 - 0 0 1\n"
        "test/36346.png test frontal 1 - 1 0 0",
    ),
    "chexpert_plus": SmallSet(  # a PNG and a DICOM that are called JPEG, a lateral, and one that nobody labeled
        {
            "df_chexpert_plus_240401.csv": lines(
                "path_to_image,path_to_dcm,frontal_lateral,ap_pa,deid_patient_id,patient_report_date_order,report,age,sex,split",
                plus_row(PLUS[0], "Frontal,AP", "1", "Male"),
                plus_row(PLUS[1], "Frontal,PA", "3", "Unknown"),
                plus_row(PLUS[2], "Lateral,", "3", "Unknown"),
                plus_row(PLUS[3], "Frontal,AP", "1", "Male"),
                plus_row(PLUS[4], "Frontal,AP", "1", "Male"),
            ),
            "chexbert_labels/impression_fixed.json": lines(
                *(
                    json.dumps(
                        {"path_to_image": path, "No Finding": N, **dict(zip(FIVE.split(","), codes, strict=True))}
                    )
                    for path, codes in zip([*PLUS[:3], PLUS[4]], PLUS_LABELS, strict=True)
                )
            ),
        },
        f"L PNG/{PLUS[0][:-4]}.png\ninv12 DICOM/{PLUS[1][:-4]}.dcm\nL PNG/PNG/{PLUS[4][:-4]}.png",
        f"PNG/{PLUS[0][:-4]}.png train frontal 1 1 0 0 0\nDICOM/{PLUS[1][:-4]}.dcm train frontal 0 0 1 1 1\n"
        f"PNG/PNG/{PLUS[4][:-4]}.png valid frontal 0 0 0 0 0",
    ),
    "chexpert_test": SmallSet(
        {
            "CheXpert/test_labels.csv": lines(
                f"Path,{FIVE}",
                *(
                    f"CheXpert-v1.0/test/patient64741/study1/{v}.jpg,1,0,0,1,0"
                    for v in ("view1_frontal", "view2_lateral")
                ),
            ),
            "CheXpert/val_labels.csv": lines(
                f"Path,{FIVE}", "CheXpert-v1.0/val/patient64541/study1/view1_frontal.jpg,0,1,0,0,0"
            ),
        },
        "jpg CheXpert/test/patient64741/study1/view1_frontal.jpg\n"
        "jpg CheXpert/test/patient64741/study1/view2_lateral.jpg\n"
        "jpg CheXpert/val/patient64541/study1/view1_frontal.jpg",
        "CheXpert/val/patient64541/study1/view1_frontal.jpg valid frontal 0 1 0 0 0\n"
        "CheXpert/test/patient64741/study1/view1_frontal.jpg test frontal 1 0 0 1 0",
    ),
    "chexphoto": SmallSet(  # a photographed and a computed copy of one image, a lateral one, and a validation image
        {
            "train.csv": lines(
                f"Path,{CHEXPERT}",
                "CheXphoto-v1.0/train/natural/nokia/patient00001/study1/view1_frontal.jpg,,,1.0,,,-1.0,,,,,,,,",
                f"CheXphoto-v1.0/train/{PHOTO}1/study1/view1_frontal.jpg,,,1.0,,,-1.0,,,,,,,,",
                f"CheXphoto-v1.0/train/{PHOTO}2/study3/view2_lateral.jpg,1.0,,,,,,,,,,,,,",
            ),
            "valid.csv": lines(
                f"Path,{CHEXPERT}",
                "CheXphoto-v1.0/valid/natural/oneplus/patient64541/study1/view1_frontal.jpg,0,0,0,0,0,1,0,0,1,0,1,0,0,0",
            ),
        },
        f"jpg train/natural/nokia/patient00001/study1/view1_frontal.jpg\njpg train/{PHOTO}1/study1/view1_frontal.jpg\n"
        f"jpg train/{PHOTO}2/study3/view2_lateral.jpg\njpg valid/natural/oneplus/patient64541/study1/view1_frontal.jpg",
        "train/natural/nokia/patient00001/study1/view1_frontal.jpg train frontal 1 1 0 0 0\n"
        f"train/{PHOTO}1/study1/view1_frontal.jpg train frontal 1 1 0 0 0\n"
        "valid/natural/oneplus/patient64541/study1/view1_frontal.jpg valid frontal 0 1 0 1 1",
    ),
    "cxr_lt": SmallSet(  # an image per split, one of them as DICOM, and a lateral one; MIMIC's own file has the views
        {
            **{
                f"cxr-lt-2024/{file}.csv": lines(
                    "dicom_id,subject_id,study_id,ViewPosition,ViewCodeSequence_CodeMeaning,fpath,"
                    f"{FIVE},Lobar Atelectasis,Round(ed) Atelectasis,Hydropneumothorax",
                    *(
                        f"{image},p1{n}000032,s5041426{n},AP,antero-posterior,{MIMIC(n, image)}.jpg,{cells}"
                        for n, image, cells in rows
                    ),
                )
                for file, rows in {
                    "train_labeled": [(0, "02aa804e", "1,0,0,0,0,1,0,0"), (0, "174413ec", "1,0,0,0,0,1,0,0")],
                    "development_labeled_task1": [(1, "2a2277a9", "0,1,0,0,0,0,0,1")],
                    "test_labeled_task1": [(2, "e084de3b", "0,0,0,0,0,0,0,0")],
                }.items()
            },
            "mimic-cxr-2.0.0-metadata.csv": lines(
                "dicom_id,subject_id,ViewPosition",
                "02aa804e,x,PA",
                "174413ec,x,LATERAL",
                "2a2277a9,x,AP",
                "e084de3b,x,AP",
            ),
        },
        f"jpg {MIMIC(0, '02aa804e')}.jpg\njpg {MIMIC(0, '174413ec')}.jpg\njpg {MIMIC(1, '2a2277a9')}.jpg\n"
        f"dcm8 {MIMIC(2, 'e084de3b')}.dcm",
        f"{MIMIC(0, '02aa804e')}.jpg train pa 1 0 0 1 0\n{MIMIC(1, '2a2277a9')}.jpg valid ap 0 1 0 0 1\n"
        f"{MIMIC(2, 'e084de3b')}.dcm test ap 0 0 0 0 0",
    ),
    "mimic_cxr_test": SmallSet(  # two studies that radiologists labeled, and one that they did not
        {
            "mimic-cxr-2.1.0-test-set-labeled.csv": lines(
                f"study_id,Airspace Opacity,{FIVE}", "50414260,1.0,1.0,0.0,,-1.0,0.0", "50414261,,0.0,1.0,1.0,0.0,"
            ),
            "mimic-cxr-2.0.0-metadata.csv": lines(
                "dicom_id,subject_id,study_id,ViewPosition",
                *("02aa804e,10000032,50414260,PA", "174413ec,10000032,50414260,LATERAL"),
                *("2a2277a9,11000032,50414261,AP", "e084de3b,12000032,50414262,AP"),
            ),
            "mimic-cxr-2.0.0-split.csv": lines(
                "dicom_id,split", *(f"{image},test" for image in ("02aa804e", "174413ec", "2a2277a9", "e084de3b"))
            ),
        },
        "\n".join(
            f"jpg {MIMIC(*place)}.jpg" for place in ((0, "02aa804e"), (0, "174413ec"), (1, "2a2277a9"), (2, "e084de3b"))
        ),
        f"{MIMIC(0, '02aa804e')}.jpg test pa 1 0 0 - 0\n{MIMIC(1, '2a2277a9')}.jpg test ap 0 1 1 0 0",
    ),
    "nih_expert_labels": SmallSet(  # of five readers, how many see atelectasis, cardiomegaly, effusion
        {
            "all_findings_expert_labels/all_findings_expert_labels_test_individual_readers.csv": lines(
                "Image ID,Patient ID,Reader ID,Abnormal,Atelectasis,Cardiomegaly,Effusion,Infiltration,Mass,Nodule,"
                "Pneumonia,Pneumothorax,Consolidation,Edema,Emphysema,Fibrosis,Pleural Thickening,Hernia,Other",
                *of_readers("00000211_006.png", 2, 5, 0),
                *of_readers("00029560_000.png", 0, 0, 3),
            )
        },
        "L images_001/images/00000211_006.png\nRGBA images_012/images/00029560_000.png",
        "images_001/images/00000211_006.png test pa 1 0 0 0 0\nimages_012/images/00029560_000.png test pa 0 0 0 0 1",
    ),
    "openi": SmallSet(  # findings with a lateral image, normal, not indexed, other findings
        {
            "indiana_projections.csv": lines(
                "uid,filename,projection",
                *(f"{n},{n}_IM-000{n}-1001.dcm.png,Frontal" for n in (1, 2, 3, 4)),
                "1,1_IM-0001-2001.dcm.png,Lateral",
            ),
            "indiana_reports.csv": lines(
                "uid,MeSH,Problems,image,indication,comparison,findings,impression",
                '1,"Cardiomegaly/borderline;Pleural Effusion/left;Opacity/lung","Cardiomegaly;Pleural Effusion;Opacity"'
                ',PA and Lateral,"pain, rib",None.,"Heart, enlarged.",Effusion.',
                "2,normal,normal,Chest,,,Clear.,Normal.",
                "3,No Indexing,No Indexing,Chest,,,,",
                '4,"Pulmonary Disease, Chronic Obstructive;Pulmonary Atelectasis/base",'
                '"Pulmonary Disease, Chronic Obstructive;Pulmonary Atelectasis",Chest,,,,',
            ),
        },
        "\n".join(
            f"RGB images/images_normalized/{n}_IM-000{n}-{v}.dcm.png" for n in (1, 2, 3, 4) for v in (1001, 2001)
        ),
        "images/images_normalized/1_IM-0001-1001.dcm.png train frontal 1 0 0 0 1\n"
        "images/images_normalized/2_IM-0002-1001.dcm.png train frontal 0 0 0 0 0\n"
        "images/images_normalized/3_IM-0003-1001.dcm.png train frontal - - - - -\n"
        "images/images_normalized/4_IM-0004-1001.dcm.png train frontal 0 0 0 1 0",
    ),
    "padchest_gr": SmallSet(  # findings in several rows, normal, and one below another of the tree
        {
            "master_table.csv": lines(
                "StudyID,ImageID,PatientID,label,label_group,sentence_en,split,PatientSex_DICOM,PatientAge",
                *(
                    f'S{n},{image}_1.png,P{n},{label},{label},"An English, sentence.",{split},{sex},63'
                    for n, image, label, split, sex in (
                        *((1, "a", label, "train", "F") for label in ("cardiomegaly", "pleural effusion", "Normal")),
                        (2, "b", "Normal", "validation", "M"),
                        *((3, "c", label, "test", "M") for label in ("laminar atelectasis", "nodule")),
                    )
                ),
            )
        },
        "\n".join(f"I;16 Padchest_GR_files/PadChest_GR/{name}_1.png" for name in "abc"),
        "Padchest_GR_files/PadChest_GR/a_1.png train frontal 1 0 0 0 1\n"
        "Padchest_GR_files/PadChest_GR/b_1.png valid frontal 0 0 0 0 0\n"
        "Padchest_GR_files/PadChest_GR/c_1.png test frontal 0 0 0 1 0",
    ),
    "rsna_pneumonia": SmallSet(  # one image with two rows of classes, and one that the classes lack
        {
            "pneumonia-challenge-dataset-mappings_2018.json": json.dumps(
                [{"img_id": f"00000001_00{n}.png", "subset_img_id": f"0004cf{n}"} for n in range(3)]
            ),
            "Data_Entry_2017_v2020.csv": NIH
            + lines(
                "00000001_000.png,Cardiomegaly|Effusion,0,1,57,M,PA,2682,2749,0.143,0.143",
                "00000001_001.png,No Finding,1,1,58,M,AP,2682,2749,0.143,0.143",
                "00000001_002.png,Edema|Pleural_Thickening,2,1,58,M,PA,2682,2749,0.143,0.143",
                "00000002_000.png,Hernia,0,2,81,F,PA,2500,2048,0.171,0.171",
            ),
            "stage_2_detailed_class_info.csv": lines(
                "patientId,class", "0004cf0,Lung Opacity", "0004cf0,Lung Opacity", "0004cf1,Normal"
            ),
        },
        "dcm8 stage_2_train_images/0004cf0.dcm\ndcm8 stage_2_train_images/0004cf1.dcm\n"
        "dcm8 stage_2_test_images/0004cf2.dcm",
        "stage_2_train_images/0004cf0.dcm train pa 1 0 0 0 1\nstage_2_train_images/0004cf1.dcm train ap 0 0 0 0 0",
    ),
    "taix_ray": SmallSet(  # graded, borderline and questionable, not assessable
        {
            "metadata/annotation.csv": lines(
                "UID,Fold,Split,PatientID,PhysicianID,StudyDate,Age,Sex,HeartSize,PulmonaryCongestion,PleuralEffusion_Right,"
                "PleuralEffusion_Left,PulmonaryOpacities_Right,PulmonaryOpacities_Left,Atelectasis_Right,Atelectasis_Left",
                "u1,0,train,p1,d1,2015-01-01,71,M,2,3,0,4,0,0,1,0",
                "u2,0,train,p1,d1,2015-01-02,71,M,1,0,0,0,2,2,0,0",
                "u3,0,val,p2,d2,2016-01-01,55,F,-1,1,1,0,0,0,0,2",
            )
        },
        "L data/u1.png\nL data/u2.png\nL data/u3.png",
        "data/u1.png train ap 1 - - 0 1\ndata/u2.png train ap 0 - - 0 0\ndata/u3.png valid ap - - - 1 0",
    ),
    "vindr_pcxr": SmallSet(
        {
            "annotations_train.csv": lines(
                *(BOXES, "a1,R1,Cardiomegaly,1,2,3,4,5", "a1,R1,Diffuse aveolar opacity,1,2,3,4,6"),
                *(
                    "a2,R2,Pleural effusion,1,2,3,4,13",
                    "a2,R2,Pleural effusion,5,6,7,8,13",
                    "a2,R2,Other nodule/mass,1,2,3,4,24",
                ),
            ),
            "annotations_test.csv": lines(BOXES, "t1,R3,No finding,,,,,36"),
        },
        "inv14 train/a1.dicom\ndcm10 train/a2.dicom\ndcm12 test/t1.dicom",
        "train/a1.dicom train frontal 1 0 0 0 0\ntrain/a2.dicom train frontal 0 0 0 0 1\n"
        "test/t1.dicom test frontal 0 0 0 0 0",
    ),
}


def opened(folder: Path, name: str, *overrides: str) -> SiteTable:
    """The set, written and opened with its shipped configuration."""
    return open_files(folder, f"more/{name}", SETS[name].files(folder), *overrides)


@each("name", SETS)
def test_a_set_in_its_own_layout_is_read(tmp_path: Path, name: str) -> None:
    table = opened(tmp_path, name)
    rows = [line.split() for line in SETS[name].expected.splitlines()]
    assert [column(table, key) for key in ("image", "split", "view")] == [
        [row[place] for row in rows] for place in range(3)
    ]
    assert labels(table.about(DISEASES)) == [[N if cell == "-" else float(cell) for cell in row[3:]] for row in rows]
    for image in column(table, "image"):
        np.testing.assert_allclose(decode(table.root / str(image)).astype(float), GREY, atol=6)
    values = torch.from_numpy(table.about(DISEASES).labels())
    logits, alpha = torch.zeros(values.shape, requires_grad=True), torch.full((5,), 0.1, requires_grad=True)
    extra = torch.full((10,), 0.5, requires_grad=True)
    AucMargin(torch.full((5,), 0.3)).loss(logits, values, extra, alpha).backward()
    for place, disease in enumerate(DISEASES):  # a disease that a set does not label moves nothing in training
        known = disease in load_site_config(MORE / f"{name}.yaml").diseases
        parts = [logits.grad[:, place], extra.grad[[place, 5 + place]], alpha.grad[place]]  # type: ignore[index]
        assert any(part.abs().sum() > 0 for part in parts) == known
        assert known or torch.isnan(values[:, place]).all()


def test_a_configuration_names_source_and_citation() -> None:
    assert sorted(path.stem for path in MORE.glob("*.yaml")) == sorted(SETS)
    for name in SETS:
        text, site = (MORE / f"{name}.yaml").read_text(encoding="utf-8"), load_site_config(MORE / f"{name}.yaml")
        assert site.license, name
        assert site.citation, name
        assert site.source.startswith("https://"), name
        assert len(site.diseases) >= 2, name
        assert f"{site.root}/" in text.split("\nsite:", maxsplit=1)[0], name
        assert f"chestfed site stats site_configs/more/{name}.yaml" in text, name


#: What is odd about one set: name, overrides -> columns.
ODD: list[tuple[str, list[str], dict[str, list[object]]]] = [
    (
        "brax",
        ["views=all"],
        {"age": [65, 65, 85, 85], "sex": ["F", "F", N, N], "view": ["pa", "lateral", "ap", "other"]},
    ),
    ("brax", ["views=all"], {"study": [f"Study_1.2.{n}" for n in (1, 1, 2, 3)], "patient": ["aa", "aa", "bb", "bb"]}),
    ("openi", ["views=all"], {"view": [*["frontal"] * 4, "lateral"]}),
    *(("nih_expert_labels", [f"table.raters={rule}"], {"atelectasis": [1, 0]}) for rule in (READERS[0], "any")),
    ("nih_expert_labels", ["table.raters=all"], {"cardiomegaly": [1, 0]}),
    ("rsna_pneumonia", [], {"patient": ["1", "1"], "sex": ["M", "M"], "age": [57, 58]}),
    ("taix_ray", ["uncertain=positive"], {"cardiomegaly": [1, 1, N], "pleural_effusion": [1, 0, 1]}),
    ("taix_ray", ["uncertain=positive"], {"atelectasis": [1, 0, 1]}),
    ("chexphoto", [], {"patient": ["patient00001", "patient00001", "patient64541"]}),
    (
        "chexpert_plus",
        ["views=all"],
        {"sex": ["M", N, N, "M"], "patient": [f"patient{n}" for n in ("00001", *["00002"] * 2, 64541)]},
    ),
    ("cxr_lt", [], {"patient": ["p10000032", "p11000032", "p12000032"]}),
]


@each(("name", "overrides", "expected"), ODD)
def test_what_is_odd_about_a_set_is_read(
    tmp_path: Path, name: str, overrides: list[str], expected: dict[str, list[object]]
) -> None:
    table = opened(tmp_path, name, *overrides)
    assert {key: column(table, key) for key in expected} == expected


def test_notes_and_folders_of_sets(tmp_path: Path) -> None:
    assert "1 of 5 rows are not in the joined file 'labels': left out" in opened(tmp_path, "chexpert_plus").notes[0]
    inside = {f"CheXphoto-v1.0/{name}": content for name, content in SETS["chexphoto"].files(tmp_path).items()}
    table = open_files(tmp_path / "inside", "more/chexphoto", inside)
    assert all((table.root / str(image)).is_file() for image in column(table, "image"))


#: Set, file, text and its replacement (None: appended) -> kind and row of the problem.
WRONG = [
    ("vindr_pcxr", "annotations_test.csv", N, "t1,R3,Hairline,,,,,40\n", ("unknown finding", 3)),
    ("openi", "indiana_projections.csv", N, "9,9_IM-0009-1001.dcm.png,Frontal\n", ("unmatched row", 7)),
    ("rsna_pneumonia", "Data_Entry_2017_v2020.csv", "00000001_001", "00000009_001", ("unmatched row", 3)),
    ("chexpert_plus", "PNG/train/patient00001/study1/view1_frontal.dcm", N, "", ("ambiguous image", 2)),
    ("cxr_lt", "mimic-cxr-2.0.0-metadata.csv", "02aa804e", "02aa804f", ("unmatched row", 2)),
]


@each(("name", "file", "old", "new", "expected"), WRONG)
def test_what_a_release_does_not_have_is_refused(
    tmp_path: Path, name: str, file: str, old: str | None, new: str, expected: tuple[str, int]
) -> None:
    files = SETS[name].files(tmp_path)
    text = str(files.get(file, ""))
    files[file] = text + new if old is None else text.replace(old, new)
    assert expected in [(problem.kind, problem.row) for problem in problems_of(tmp_path, f"more/{name}", files)]


def test_padchests_terms_mean_to_a_table_what_they_mean_to_padchests_own_reader() -> None:
    site = load_site_config(CONFIGS / "padchest.yaml")
    rows, problems = read_book(MORE / "padchest.codes.csv", site.diseases)
    assert not problems

    found = {row.value: parse_meaning(row.meaning) for row in rows if row.kind == FINDING}
    assert found.keys() == {normal(term) for term in tree()}
    for term, above in tree().items():
        meant = found[normal(term)]
        assert meant is not None
        assert set(meant.findings) == {name for name, (word,) in site.labels.items() if word in above}, term
        assert meant.understood == (term not in ("exclude", "suboptimal study", "unchanged")), term


def test_sets_made_of_anothers_images_say_so_in_capitals() -> None:
    same = {
        path.stem for path in MORE.glob("*.yaml") if re.search(r"^# THE [A-Z ]+ARE ", path.read_text(), re.MULTILINE)
    }
    assert same == {"chestx_det", "chexpert_plus", "chexpert_test", "chexphoto", "cxr_lt"} | {
        *("mimic_cxr_test", "nih_expert_labels", "padchest_gr", "rsna_pneumonia")
    }


def test_the_index_and_the_pages_name_every_site() -> None:
    docs = CONFIGS.parent / "docs"
    index = (docs / "sites.md").read_text(encoding="utf-8")
    five = ["chexpert", "chestxray8", "padchest", "mimic_cxr", "vindr"]
    assert sorted(path.stem for path in (docs / "sites").glob("*.md")) == sorted([*SETS, *five])
    for name in [*SETS, *five]:
        assert f"](sites/{name}.md)" in index, name
        page = (docs / "sites" / f"{name}.md").read_text(encoding="utf-8")
        config = "more/" * (name in SETS) + name
        assert f"site_configs/{config}.yaml" in page
        site = yaml.safe_load((CONFIGS / f"{config}.yaml").read_text(encoding="utf-8"))
        assert site["source"] in page
        for heading in ("Get it", "Cost", "Layout", "Labels here", "Known defects", "Checked", "License", "Cite"):
            assert f"**{heading}**" in page, (name, heading)


# In a study.

STUDY = """
title: Two of the ready-made sites
sites:
  - config: chestdr.yaml
  - config: chestx_det.yaml
k: [1, 2]
model: {name: small, init_features: 8, growth_rate: 8, blocks: [1]}
preprocess: {size: 64}
pretrain: {epochs: 1, batch_size: 8, lr: 1.0e-2}
methods: [{algorithm: codasca}]
federated: {window: 2, stages: 1, stage_steps: 4, batch_size: 4}
evaluation: {split: test, resamples: 20}
"""
FOUR = ("Cardiomegaly", "Consolidation", "Atelectasis", "Effusion")


def test_a_site_that_lacks_a_disease_trains_beside_one_that_has_it(tmp_path: Path) -> None:
    table = [",img_id," + "cardiomegaly,pulmonary_edema,consolidation,atelectasis,pleural_effusion"]
    table += [f"{n},{n}.png," + ",".join(str(int((n + place) % 3 == 0)) for place in range(5)) for n in range(24)]
    objects = [
        {"file_name": f"{n}.png", "syms": [name for place, name in enumerate(FOUR) if (n + place) % 3 == 0]}
        for n in range(24)
    ]
    files = {
        "chestdr/chestdr_published_19d.csv": "\n".join(table) + "\n",
        "chestx-det/ChestX_Det_train.json": json.dumps(objects),
        "chestx-det/ChestX_Det_test.json": json.dumps([{"file_name": "t.png", "syms": []}]),
        "chestx-det/test/t.png": draw("L", tmp_path, GREY[::-1]),
        **{f"chestdr/images/{n}.png": draw("L", tmp_path) for n in range(24)},
        **{f"chestx-det/train/{n}.png": draw("L", tmp_path, GREY[::-1]) for n in range(24)},
    }
    write_files(tmp_path, files)
    for name, keys in (("chestdr", "splits: {test_fraction: 0.25}\n"), ("chestx_det", "")):
        text = f"extends: {(MORE / name).as_posix()}.yaml\n{keys}"
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "study.yaml").write_text(STUDY, encoding="utf-8")
    options = ["--data", "site", "--set", "runtime.threads=1", "--set", "runtime.device=cpu", "--no-tracking"]
    result = call("study", "study.yaml", *options, folder=tmp_path)
    assert result.code == 0, result.err + result.out
    (written,) = (tmp_path / "runs").glob("*/study.json")
    assert "chestx_det" in written.read_text(encoding="utf-8")


# On real label files.


@pytest.mark.real_data
def test_rsnas_labels_are_nihs_on_the_real_table(tmp_path: Path, data: Path) -> None:
    import gzip

    real = gzip.decompress((data / "labels" / "Data_Entry_2017_v2020.csv.gz").read_bytes())
    assert real.startswith(NIH.encode())
    names = [line.split(b",", 1)[0].decode() for line in real.splitlines()[1:]]
    mapping = [{"img_id": name, "subset_img_id": f"s{place}"} for place, name in enumerate(names)]
    files = {
        "mappings.json": json.dumps(mapping),
        "Data_Entry_2017_v2020.csv": real,
        "stage_2_detailed_class_info.csv": "patientId,class\n"
        + "".join(f"s{place},Normal\n" for place in range(len(names))),
    }
    table = open_files(tmp_path, "more/rsna_pneumonia", files)
    assert (len(table.frame), table.frame["patient"].nunique()) == (112_120, 30_805)
    np.testing.assert_allclose(table.positive_ratios(), [0.0248, 0.0205, 0.0416, 0.1031, 0.1188], atol=0.00006)


@pytest.mark.real_data
def test_chexphotos_configuration_reads_chexperts_real_table_as_its_own_reader_does(data: Path) -> None:
    file = data / "labels" / "chexpert_train.csv.gz"
    overrides = ["upsample={}", "views=[frontal,pa,ap]"]
    theirs = open_site(load_site_config(CONFIGS / "chexpert.yaml", overrides), data, file)
    small = ["table.images.remove_prefix=CheXpert-v1.0-small/"]
    ours = open_site(config_of("more/chexphoto", *small), data, file)
    assert len(ours.frame) == 191_027
    for name in ("image", "patient", "study"):
        assert column(ours, name) == column(theirs, name)
    np.testing.assert_array_equal(ours.labels(), theirs.labels())
