"""The datasheet of a benchmark in Croissant 1.0, the JSON-LD that catalogues of data sets read.

MLCommons: Croissant Format Specification 1.0, http://mlcommons.org/croissant/1.0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from chestfed._version import __version__
from chestfed.core.diseases import format_title
from chestfed.data.films.registry import Release, ReleaseFile, find_release
from chestfed.leaves.leaderboard.benchmark import Benchmark

_TERMS: Final = (
    *("citeAs", "column", "equivalentProperty", "extract", "field", "fileProperty", "fileObject", "fileSet", "format"),
    *("includes", "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet", "references", "regex"),
    *("repeated", "replace", "samplingRate", "separator", "source", "subField", "transform"),
)
_CONTEXT: Final = {
    "@language": "en",
    **dict.fromkeys(("@vocab", "sc"), "https://schema.org/"),
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    **{name: {"@id": f"cr:{name}", "@type": "@json"} for name in ("data", "examples")},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    **{name: f"cr:{name}" for name in _TERMS},
}
_FORMATS: Final = {".zip": "application/zip", ".gz": "application/gzip", ".csv": "text/csv"}


def make_datasheet(benchmark: Benchmark, file: Path) -> dict[str, Any]:
    """The datasheet of the benchmark in this YAML file, as JSON-LD.

    Its records are hospitals and diseases, with counts and digests. Images and labels stay in the releases. Their files
    without a published digest, which Croissant demands, are named in `isBasedOn` alone.
    """
    releases, content = [find_release(name) for name in benchmark.releases], file.read_bytes()
    other = ["Apache-2.0, as chestfed" if benchmark.verifiable else "that of each data set, after registration"]
    source = ", ".join(release.title for release in releases) or "see the YAML of the pipeline"
    titles = [{"disease": name, "title": format_title(name)} for name in benchmark.diseases]
    targets = [{"hospital": name, **target.model_dump()} for name, target in benchmark.targets.items()]
    files = [_describe_file(release, part) for release in releases for part in release.files if part.digest]
    about = {"@type": "cr:FileObject", "@id": file.name, "name": file.name, "contentUrl": file.name}
    about |= {"encodingFormat": "application/x-yaml", "sha256": hashlib.sha256(content).hexdigest()}
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": benchmark.name,
        "description": f"{benchmark.title}. {benchmark.question} Images: {source}. Test patients are fixed by digests.",
        "version": "1.0.0",
        "datePublished": benchmark.published,
        "license": [f"{release.title}: {release.license}" for release in releases] or other,
        "citeAs": " ".join(dict.fromkeys(release.citation for release in releases)) or f"chestfed {__version__}",
        "url": next((release.home for release in releases), file.name),
        "keywords": ["chest X-ray", "federated learning", *map(format_title, benchmark.diseases)],
        "isLiveDataset": False,
        "isBasedOn": [_describe_release(release) for release in releases],
        "distribution": [about, *files],
        "recordSet": [
            _make_record_set("test_images", "Hospitals that are scored, and digests of their splits", targets),
            _make_record_set("diseases", "Findings: labels 0, 1 or missing, and a score of each image", titles),
        ],
    }


def _describe_release(release: Release) -> dict[str, Any]:
    about = {"@type": "sc:Dataset", "name": release.title, "url": release.home, "license": release.license}
    parts = [{"@type": "sc:DataDownload", "name": part.name, "contentUrl": part.url} for part in release.files]
    return about | {"citation": release.citation, "hasPart": parts}


def _describe_file(release: Release, part: ReleaseFile) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": f"{release.folder}/{part.name}",
        "name": part.name,
        "description": f"{release.title}: {release.license}",
        "contentUrl": part.url,
        "contentSize": f"{part.size} B",
        "encodingFormat": _FORMATS.get(Path(part.name).suffix, "application/octet-stream"),
        **dict([str(part.digest).split(":")]),
    }


def _make_record_set(name: str, text: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    fields = [
        {"@type": "cr:Field", "@id": f"{name}/{key}", "name": key, "description": key.replace("_", " ")}
        | {"dataType": "sc:Integer" if isinstance(value, int) else "sc:Text"}
        for key, value in rows[0].items()
    ]
    data = [{f"{name}/{key}": value for key, value in row.items()} for row in rows]
    return {"@type": "cr:RecordSet", "@id": name, "name": name, "description": text, "field": fields, "data": data}
