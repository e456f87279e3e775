"""Small copies of further public sets, in the layout in which each is distributed: labels and pictures, drawn here."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from PIL import Image
from pydicom.dataset import Dataset

from tests.sites.own_tables import save_dicom

Files = Mapping[str, str | bytes]
#: A gradient: bone is brighter than air, so that an inversion would be seen.
GREY = np.linspace(0, 255, 48 * 40).reshape(48, 40)


def png(mode: str = "L", gray: np.ndarray = GREY) -> bytes:
    """A PNG of 8 bits, of 16 bits (`I;16`), or in colors."""
    picture = Image.fromarray((gray * 257).astype(np.uint16) if mode == "I;16" else gray.astype("u1"))
    return _bytes(picture if mode == "I;16" else picture.convert(mode), "PNG")


def jpg() -> bytes:
    """A gray JPEG."""
    return _bytes(Image.fromarray(GREY.astype("u1")), "JPEG")


def dcm(folder: Path, photometric: str = "MONOCHROME2", bits: int = 12) -> bytes:
    """A DICOM file; the stored values of MONOCHROME1 are turned, so that the picture is the same."""
    top = 2**bits - 1
    stored = GREY / 255 * top
    stored = top - stored if photometric == "MONOCHROME1" else stored
    pixels = Dataset()
    pixels.Rows, pixels.Columns = GREY.shape
    pixels.BitsStored, pixels.HighBit = bits, bits - 1
    pixels.PhotometricInterpretation = photometric
    pixels.PixelData = stored.astype(np.uint16).tobytes()
    path = save_dicom(folder / "drawn.dcm", **{element.keyword: element.value for element in pixels})
    data = path.read_bytes()
    path.unlink()
    return data


def _bytes(picture: Image.Image, kind: str) -> bytes:
    held = io.BytesIO()
    picture.save(held, kind, quality=95) if kind == "JPEG" else picture.save(held, kind)
    return held.getvalue()


CHEXPERT = (
    "No Finding,Enlarged Cardiomediastinum,Cardiomegaly,Lung Lesion,Lung Opacity,Edema,Consolidation,Pneumonia,"
    "Atelectasis,Pneumothorax,Pleural Effusion,Pleural Other,Fracture,Support Devices"
)


def brax(_: Path) -> Files:
    """Three images of two patients: a PA and a lateral of one study, an old patient's AP, and a decubitus."""
    names = [
        f"images/id_{patient}/Study_1.2.{study}/Series_1.3.{image}/image-1.4.{image}.png"
        for patient, study, image in (("aa", 1, 1), ("aa", 1, 2), ("bb", 2, 3), ("bb", 3, 4))
    ]
    header = f",DicomPath,PngPath,PatientID,PatientSex,PatientAge,AccessionNumber,StudyDate,{CHEXPERT},"
    rows = [
        f"0,x,{names[0]},aa,F,65,9,20010101,,,1.0,,,-1.0,,,,,0.0,,,,PA,1,1,1",
        f"1,x,{names[1]},aa,F,65,9,20010101,,,1.0,,,-1.0,,,,,0.0,,,,L,1,1,1",
        f"2,x,{names[2]},bb,O,85 or more,9,20010102,,,-1.0,,,,1.0,,-1.0,,1.0,,,,AP,1,1,1",
        f"3,x,{names[3]},bb,O,85 or more,9,20010103,1.0,,,,,,,,,,,,,,LT-DECUB,1,1,1",
    ]
    table = "\n".join([f"{header}ViewPosition,Rows,Columns,Manufacturer", *rows]) + "\n"
    return {"master_spreadsheet_update.csv": table, **{name: png("I;16") for name in names}}


def vindr_pcxr(folder: Path) -> Files:
    """Two training images, one with two boxes of a finding, and a test image without finding."""
    header = "image_id,rad_ID,class_name,x_min,y_min,x_max,y_max,class_id\n"
    train = (
        "a1,R1,Cardiomegaly,1,2,3,4,5\na1,R1,Diffuse aveolar opacity,1,2,3,4,6\n"
        "a2,R2,Pleural effusion,1,2,3,4,13\na2,R2,Pleural effusion,5,6,7,8,13\na2,R2,Other nodule/mass,1,2,3,4,24\n"
    )
    return {
        "annotations_train.csv": header + train,
        "annotations_test.csv": f"{header}t1,R3,No finding,,,,,36\n",
        "train/a1.dicom": dcm(folder, "MONOCHROME1", 14),
        "train/a2.dicom": dcm(folder, bits=10),
        "test/t1.dicom": dcm(folder),
    }


def openi(_: Path) -> Files:
    """Four reports: findings with a lateral image, a normal one, one that nobody indexed, one with other findings."""
    views = [("1", "1001", "Frontal"), ("1", "2001", "Lateral"), ("2", "1001", "Frontal"), ("3", "1001", "Frontal")]
    views.append(("4", "1001", "Frontal"))
    names = [f"{uid}_IM-000{uid}-{number}.dcm.png" for uid, number, _ in views]
    images = zip(views, names, strict=True)
    reports = (
        '1,"Cardiomegaly/borderline;Pleural Effusion/left;Opacity/lung","Cardiomegaly;Pleural Effusion;Opacity",'
        'PA and Lateral,"pain, rib",None.,"Heart, enlarged.",Effusion.\n'
        "2,normal,normal,Chest,,,Clear.,Normal.\n"
        "3,No Indexing,No Indexing,Chest,,,,\n"
        '4,"Pulmonary Disease, Chronic Obstructive;Pulmonary Atelectasis/base",'
        '"Pulmonary Disease, Chronic Obstructive;Pulmonary Atelectasis",Chest,,,,\n'
    )
    return {
        "indiana_projections.csv": "uid,filename,projection\n"
        + "".join(f"{uid},{name},{view}\n" for (uid, _, view), name in images),
        "indiana_reports.csv": "uid,MeSH,Problems,image,indication,comparison,findings,impression\n" + reports,
        **{f"images/images_normalized/{name}": png("RGB") for name in names},
    }


def nih_expert_labels(_: Path) -> Files:
    """Two images read by five radiologists; a sign behind a word, as in the real file."""
    names = "Atelectasis,Cardiomegaly,Effusion,Infiltration,Mass,Nodule,Pneumonia,Pneumothorax,Consolidation,Edema,"
    header = f"Image ID,Patient ID,Reader ID,Abnormal,{names}Emphysema,Fibrosis,Pleural Thickening,Hernia,Other\n"
    readers = ("4343882583", "4343882785", "4343880271", "4343883996", "4343883593")
    said = {
        "00000211_006.png": [2, 5, 0],
        "00029560_000.png": [0, 0, 3],
    }  # of five, atelectasis, cardiomegaly, effusion
    rows = []
    for image, counts in said.items():
        for place, reader in enumerate(readers):
            three = ["YES" if place < count else "NO" for count in counts]
            other = "NO^" if place == 0 else "NO"
            rows.append(",".join([image, str(int(image[:8])), reader, "1", *three, *["NO"] * 11, other]))
    return {
        "all_findings_expert_labels/all_findings_expert_labels_test_individual_readers.csv": header
        + "\n".join(rows)
        + "\n",
        "images_001/images/00000211_006.png": png(),
        "images_012/images/00029560_000.png": png("RGBA"),
    }


def chestx_det(_: Path) -> Files:
    """Two training images, one of them without a finding, and a test image."""
    box, outline = [799, 666, 937, 761], [[799, 678], [801, 681]]
    train = [
        {"file_name": "1001.png", "syms": [], "boxes": [], "polygons": []},
        {
            "file_name": "1002.png",
            "syms": ["Effusion", "Effusion", "Mass"],
            "boxes": [box] * 3,
            "polygons": [outline] * 3,
        },
    ]
    test = [{"file_name": "36346.png", "syms": ["Cardiomegaly", "Consolidation"], "boxes": [box] * 2, "polygons": []}]
    return {
        "ChestX_Det_train.json": json.dumps(train),
        "ChestX_Det_test.json": json.dumps(test),
        "train/1001.png": png(),
        "train/1002.png": png("RGB"),
        "test/36346.png": png(),
    }


NIH = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y]\n"
)


def rsna_pneumonia(folder: Path) -> Files:
    """Two training images of one patient, one with two rows of classes, and a test image that the classes lack."""
    mapping = [
        {"img_id": f"00000001_00{number}.png", "subset_img_id": f"0004cf{number}", "SOPInstanceUID": f"1.2.{number}"}
        for number in range(3)
    ]
    labels = [
        "00000001_000.png,Cardiomegaly|Effusion,0,1,57,M,PA,2682,2749,0.143,0.143\n",
        "00000001_001.png,No Finding,1,1,58,M,AP,2682,2749,0.143,0.143\n",
        "00000001_002.png,Edema|Pleural_Thickening,2,1,58,M,PA,2682,2749,0.143,0.143\n",
        "00000002_000.png,Hernia,0,2,81,F,PA,2500,2048,0.171,0.171\n",
    ]
    classes = "0004cf0,Lung Opacity\n0004cf0,Lung Opacity\n0004cf1,Normal\n"
    return {
        "pneumonia-challenge-dataset-mappings_2018.json": json.dumps(mapping),
        "Data_Entry_2017_v2020.csv": NIH + "".join(labels),
        "stage_2_detailed_class_info.csv": f"patientId,class\n{classes}",
        **{f"stage_2_train_images/0004cf{number}.dcm": dcm(folder, bits=8) for number in (0, 1)},
        "stage_2_test_images/0004cf2.dcm": dcm(folder, bits=8),
    }


def taix_ray(_: Path) -> Files:
    """Three images of two patients: graded, borderline and questionable, not assessable."""
    header = "UID,Fold,Split,PatientID,PhysicianID,StudyDate,Age,Sex,HeartSize,PulmonaryCongestion,"
    header += "PleuralEffusion_Right,PleuralEffusion_Left,PulmonaryOpacities_Right,PulmonaryOpacities_Left,"
    header += "Atelectasis_Right,Atelectasis_Left\n"
    rows = "u1,0,train,p1,d1,2015-01-01,71,M,2,3,0,4,0,0,1,0\nu2,0,train,p1,d1,2015-01-02,71,M,1,0,0,0,2,2,0,0\n"
    rows += "u3,0,val,p2,d2,2016-01-01,55,F,-1,1,1,0,0,0,0,2\n"
    return {"metadata/annotation.csv": header + rows, **{f"data/u{number}.png": png() for number in (1, 2, 3)}}


def chexphoto(_: Path) -> Files:
    """A photographed and a computed copy of one image, a lateral one, and a validation image."""
    names = [
        "train/natural/nokia/patient00001/study1/view1_frontal.jpg",
        "train/synthetic/digital/patient00001/study1/view1_frontal.jpg",
        "train/synthetic/digital/patient00002/study3/view2_lateral.jpg",
        "valid/natural/oneplus/patient64541/study1/view1_frontal.jpg",
    ]
    labels = [",,1.0,,,-1.0,,,,,,,,", ",,1.0,,,-1.0,,,,,,,,", "1.0,,,,,,,,,,,,,", "0,0,0,0,0,1,0,0,1,0,1,0,0,0"]
    rows = [f"CheXphoto-v1.0/{name},{cells}\n" for name, cells in zip(names, labels, strict=True)]
    return {
        "train.csv": f"Path,{CHEXPERT}\n" + "".join(rows[:3]),
        "valid.csv": f"Path,{CHEXPERT}\n{rows[3]}",
        **{name: jpg() for name in names},
    }


def chestdr(_: Path) -> Files:
    """Two images."""
    names = (
        "pleural_effusion,nodule,pneumonia,cardiomegaly,hilar_enlargement,fracture_old,fibrosis,aortic_calcification,"
    )
    names += "tortuous_aorta,thickened_pleura,TB,pneumothorax,emphysema,atelectasis,calcification,pulmonary_edema,"
    names += "increased_lung_markings,elevated_diaphragm,consolidation"
    first = dict.fromkeys(names.split(","), "0") | {"pleural_effusion": "1", "pulmonary_edema": "1"}
    second = dict.fromkeys(names.split(","), "0.0") | {"cardiomegaly": "1.0"}
    rows = "".join(
        f"{place},{image}.png,{','.join(cells.values())}\n"
        for place, (image, cells) in enumerate({"d1": first, "d2": second}.items())
    )
    return {"chestdr_published_19d.csv": f",img_id,{names}\n{rows}", "images/d1.png": png(), "images/d2.png": png("P")}


FIVE = ("Cardiomegaly", "Edema", "Consolidation", "Atelectasis", "Pleural Effusion")


def chexpert_plus(folder: Path) -> Files:
    """A PNG, a DICOM and a lateral image that are all called JPEG, one that nobody labeled, and a validation image."""
    paths = [
        "train/patient00001/study1/view1_frontal.jpg",
        "train/patient00002/study3/view1_frontal.jpg",
        "train/patient00002/study3/view2_lateral.jpg",
        "train/patient00003/study1/view1_frontal.jpg",
        "valid/patient64541/study1/view1_frontal.jpg",
    ]
    header = "path_to_image,path_to_dcm,frontal_lateral,ap_pa,deid_patient_id,patient_report_date_order,report,"
    header += "age,sex,split\n"
    told = [("Frontal,AP", "1"), ("Frontal,PA", "3"), ("Lateral,", "3"), ("Frontal,AP", "1"), ("Frontal,AP", "1")]
    rows = [
        f'{path},{path.replace("jpg", "dcm")},{view},{path.split("/")[1]},{order},"Heart, big.",{63.0},'
        f"{'Male' if order == '1' else 'Unknown'},{path.split('/')[0]}\n"
        for path, (view, order) in zip(paths, told, strict=True)
    ]
    said = [[1.0, -1.0, None, None, 0.0], [-1.0, None, 1.0, -1.0, 1.0], [1.0] * 5, [0.0] * 5]
    labels = [
        {"path_to_image": path, "No Finding": None, **dict(zip(FIVE, codes, strict=True))}
        for path, codes in zip([*paths[:3], paths[4]], said, strict=True)
    ]
    return {
        "df_chexpert_plus_240401.csv": header + "".join(rows),
        "chexbert_labels/impression_fixed.json": "\n".join(map(json.dumps, labels)) + "\n",
        f"PNG/{paths[0][:-4]}.png": png(),
        f"DICOM/{paths[1][:-4]}.dcm": dcm(folder, "MONOCHROME1"),
        f"PNG/PNG/{paths[4][:-4]}.png": png(),
    }


def chexpert_test(_: Path) -> Files:
    """CheXlocalize: a test image and a lateral one of its study, and a validation image, in folders of its own."""
    names = [
        "test/patient64741/study1/view1_frontal.jpg",
        "test/patient64741/study1/view2_lateral.jpg",
        "val/patient64541/study1/view1_frontal.jpg",
    ]
    header = f"Path,{','.join(FIVE)}\n"
    test = [f"CheXpert-v1.0/{name},1.0,0.0,0.0,1.0,0.0\n" for name in names[:2]]
    return {
        "CheXpert/test_labels.csv": header + "".join(test),
        "CheXpert/val_labels.csv": f"{header}CheXpert-v1.0/{names[2]},0.0,1.0,0.0,0.0,0.0\n",
        **{f"CheXpert/{name}": jpg() for name in names},
    }


def mimic_cxr_test(_: Path) -> Files:
    """Two studies that radiologists labeled, one of them with a lateral image, and one that they did not."""
    studies = [("10000032", "50414260"), ("11000032", "50414261"), ("12000032", "50414262")]
    images = [("02aa804e", *studies[0], "PA"), ("174413ec", *studies[0], "LATERAL"), ("2a2277a9", *studies[1], "AP")]
    images.append(("e084de3b", *studies[2], "AP"))
    labels = ["50414260,1.0,1.0,0.0,,-1.0,0.0\n", "50414261,,0.0,1.0,1.0,0.0,\n"]
    places = [f"files/p{subject[:2]}/p{subject}/s{study}/{image}.jpg" for image, subject, study, _ in images]
    rows = [",".join(image) + "\n" for image in images]
    return {
        "mimic-cxr-2.1.0-test-set-labeled.csv": f"study_id,Airspace Opacity,{','.join(FIVE)}\n{''.join(labels)}",
        "mimic-cxr-2.0.0-metadata.csv": f"dicom_id,subject_id,study_id,ViewPosition\n{''.join(rows)}",
        "mimic-cxr-2.0.0-split.csv": "dicom_id,split\n" + "".join(f"{image[0]},test\n" for image in images),
        **{place: jpg() for place in places},
    }


def cxr_lt(folder: Path) -> Files:
    """An image per split, one of them as DICOM, and a lateral one; the views are in MIMIC's own file."""
    images = ["02aa804e-bde0afdd", "174413ec-4ec4c1f7", "2a2277a9-b0ded155", "e084de3b-be89b11e"]
    places = [f"files/p1{n}/p1{n}000032/s5041426{n}" for n in (0, 0, 1, 2)]
    findings = (*FIVE, "Lobar Atelectasis", "Round(ed) Atelectasis", "Hydropneumothorax")
    header = f"dicom_id,subject_id,study_id,ViewPosition,ViewCodeSequence_CodeMeaning,fpath,{','.join(findings)}\n"
    said = ["1,0,0,0,0,1,0,0", "1,0,0,0,0,1,0,0", "0,1,0,0,0,0,0,1", "0,0,0,0,0,0,0,0"]
    rows = [
        f"{image},{place.split('/')[2]},{place.split('/')[3]},AP,antero-posterior,{place}/{image}.jpg,{cells}\n"
        for image, place, cells in zip(images, places, said, strict=True)
    ]
    views = [f"{image},x,{view}\n" for image, view in zip(images, ("PA", "LATERAL", "AP", "AP"), strict=True)]
    return {
        "cxr-lt-2024/train_labeled.csv": header + rows[0] + rows[1],
        "cxr-lt-2024/development_labeled_task1.csv": header + rows[2],
        "cxr-lt-2024/test_labeled_task1.csv": header + rows[3],
        "mimic-cxr-2.0.0-metadata.csv": "dicom_id,subject_id,ViewPosition\n" + "".join(views),
        **{f"{place}/{image}.jpg": jpg() for image, place in zip(images[:3], places, strict=False)},
        f"{places[3]}/{images[3]}.dcm": dcm(folder, bits=8),
    }


def padchest_gr(_: Path) -> Files:
    """Three images: with findings in several rows, normal, and with a finding below one of the tree."""
    rows = [
        ("a_1.png", "S1", "P1", "cardiomegaly", "train", "F"),
        ("a_1.png", "S1", "P1", "pleural effusion", "train", "F"),
    ]
    rows += [("a_1.png", "S1", "P1", "Normal", "train", "F"), ("b_1.png", "S2", "P2", "Normal", "validation", "M")]
    rows += [
        ("c_1.png", "S3", "P3", "laminar atelectasis", "test", "M"),
        ("c_1.png", "S3", "P3", "nodule", "test", "M"),
    ]
    lines = [
        f'{study},{image},{patient},{label},{label},"An English, sentence.",{split},{sex},63\n'
        for image, study, patient, label, split, sex in rows
    ]
    header = "StudyID,ImageID,PatientID,label,label_group,sentence_en,split,PatientSex_DICOM,PatientAge\n"
    names = dict.fromkeys(row[0] for row in rows)
    return {
        "master_table.csv": header + "".join(lines),
        **{f"Padchest_GR_files/PadChest_GR/{name}": png("I;16") for name in names},
    }


def bimcv_covid19(_: Path) -> Files:
    """Two sessions with a frontal, a lateral, a nameless and a CT image; and one of a session without labels."""
    stem = "sub-S0001/ses-E0001/mod-rx/sub-S0001_ses-E0001_run-1_bp-chest"
    other = "sub-S0002/ses-E0002/mod-rx/sub-S0002_ses-E0002_acq-2_run-1_bp-chest"
    files = [f"{stem}_vp-ap_dx.png", f"{stem}_vp-ll_cr.png", f"{stem}_cr.png", f"{other}_vp-pa_cr.png"]
    files += ["sub-S0002/ses-E0002/mod-ct/sub-S0002_ses-E0002_run-1_bp-chest_ct.nii.gz"]
    files += ["sub-S0003/ses-E0003/mod-rx/sub-S0003_ses-E0003_run-1_bp-chest_vp-pa_dx.png"]
    rows = [f"{file.split('/')[0]}\t{file.split('/')[1]}\t./{file}\n" for file in files]
    labels = [
        "0\tsub-S0001\tses-E0001\t['COVID 19', 'viral pneumonia', 'loculated pleural effusion ']\n",
        "1\tsub-S0002\tses-E0002\t['unchanged', 'cardiomegaly']\n",
    ]
    return {
        "derivatives/partitions.tsv": "subject\tsession\tfilepath\n" + "".join(rows),
        "derivatives/labels/labels_covid_posi.tsv": "\tPatientID\tReportID\tLabels\n" + "".join(labels),
        "participants.tsv": "participant\tmodality_dicom\tage\tgender\n"
        + "".join(f"sub-S000{number}\t['CR']\t[63]\t{'FM'[number % 2]}\n" for number in (1, 2)),
        **{file: png("I;16") for file in files if file.endswith("png")},
    }


#: Name of the configuration -> what writes its files.
SETS: Mapping[str, Callable[[Path], Files]] = {
    "bimcv_covid19": bimcv_covid19,
    "brax": brax,
    "chestdr": chestdr,
    "chestx_det": chestx_det,
    "chexpert_plus": chexpert_plus,
    "chexpert_test": chexpert_test,
    "chexphoto": chexphoto,
    "cxr_lt": cxr_lt,
    "mimic_cxr_test": mimic_cxr_test,
    "nih_expert_labels": nih_expert_labels,
    "openi": openi,
    "padchest_gr": padchest_gr,
    "rsna_pneumonia": rsna_pneumonia,
    "taix_ray": taix_ray,
    "vindr_pcxr": vindr_pcxr,
}
