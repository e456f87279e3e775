"""Every command, as the documentation types it: in a working folder, with relative paths."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml

from chestfed.core.bundled import bundled
from chestfed.core.diseases import DISEASES
from chestfed.learning.models import build_model
from chestfed.leaves.federation.hospital.log import open_log
from chestfed.leaves.federation.server import conversation
from chestfed.leaves.federation.settings import read_hospital
from chestfed.studies.experiment.loading import load_pipeline
from tests.command_line import call, commands
from tests.leaves.federation.straight_line import Clock, StraightLine
from tests.studies.training.tiny_studies import SMALL

#: The commands in the order in which each needs the files of those before it. `*` is expanded as by a shell, and
#: `FOLDER:` is the working folder.
LINES = """\
schema schemas
datasets list
datasets show hannover
datasets get hannover --data films
algorithms codasca
power pipelines/small.yaml --difference 0.05 --seeds 3
samples --out synthetic_hospitals --size tiny
doctor --out runs --data synthetic_hospitals
samples --extra st-anne/wide --size tiny --out hospitals
site new st-anne --images hospitals/synthetic-st-anne/Bilder --labels hospitals/synthetic-st-anne/Befunde.csv ...
    --uncertain missing --column ignore=Rippenfraktur --no-input
site check site_configs/st-anne.yaml --fix-splits --no-images
site_configs: site check st-anne.yaml --fix-splits --no-images
site check site_configs/st-anne_fixed.yaml --against site_configs/synthetic/vindr.yaml --data synthetic_hospitals ...
    --workers 1 --out st_anne_check
site check site_configs/st-anne.yaml --labels hospitals/synthetic-st-anne/Befunde.csv
site card site_configs/st-anne_fixed.yaml --workers 1 --out st_anne_card.html
site stats site_configs/st-anne_fixed.yaml --csv stats.csv
site table site_configs/st-anne_fixed.yaml --sample 2 --csv rows.csv --sheet sheet.png
key --new trial.key
key --names site_configs/st-anne_fixed.yaml --out anne.json
key --common anne.json --common anne.json
study pipelines/small.yaml --add-site site_configs/st-anne_fixed.yaml --k 1,3
runs
report runs/synthetic-small-*
runs/synthetic-small-*: report . --out page.html
evaluate runs/synthetic-small-* --site site_configs/st-anne_fixed.yaml --split test --resamples 10
evaluate start.pth --model-config start.yaml --site site_configs/st-anne_fixed.yaml --split test --out start
runs/synthetic-small-*/k3: evaluate . --k 3 --site ../../../site_configs/st-anne_fixed.yaml --split test
export runs/synthetic-small-* --out hub
saliency runs/synthetic-small-* --site site_configs/synthetic/vindr.yaml --data synthetic_hospitals --split test ...
    --images 1
site probe pipelines/small.yaml
new pipeline mine --from digits_ih
compare runs/synthetic-small-*/k1 runs/synthetic-small-*/k3 --out paired --resamples 10
runs/synthetic-small-*/k1: compare --k 1 predictions.parquet . --resamples 10
ui --out runs --port 1
leaderboard --datasheet samples-v2 --output sheet.json
tune pipelines/small.yaml --methods fedprox --trials 1 --seeds 1 --no-tracking
cache list cache
cache prune cache
federation init trial --samples synthetic_hospitals
federation hospital trial/hospitals/vindr --check
trial/hospitals/vindr: federation hospital . --check
federation join anne --name anne --server localhost:9443 --authority trial/authority.crt
federation rekey anne
federation add trial anne --key anne/anne.pub
federation remove trial anne
federation renew trial
federation server trial
federation status trial
federation run pipelines/small.yaml --federation trial --out shared --no-tracking
federation audit trial/hospitals/chexpert
""".replace("...\n", "").splitlines()


@pytest.mark.slow
def test_every_command_takes_relative_paths(
    tmp_path: Path, copied_hospitals: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CHESTFED_DATA", raising=False)
    monkeypatch.setattr("chestfed.results.evaluation.joining.planning.LEAST_PATIENTS", 1)
    monkeypatch.setattr("chestfed.app.commands.machine.ui.serve", lambda *_: 0)
    monkeypatch.setattr(
        "chestfed.app.commands.machine.ui.socket.create_server", lambda _: SimpleNamespace(close=lambda: None)
    )
    monkeypatch.setattr("chestfed.data.films.fetch.fetch_release", lambda *_, **__: 0)
    stand_in_for_flower(monkeypatch)
    for name in ("pipelines", "site_configs"):
        shutil.copytree(bundled(name), name)
    write_pipeline()
    missing = set(commands())
    for line in LINES:
        folder, _, command = line.rpartition(": ")
        words = [name for word in command.split() for name in expand(word)]
        called = call(*words, folder=Path(*expand(folder)))
        assert called.code == 0, f"{line}\n{called.err}{called.out}"
        missing -= {command for command in missing if command == tuple(words[: len(command)])}
    # the first takes runs of a whole benchmark: tests/leaderboard; the other needs a study that is running
    assert missing == {("submit",), ("federation", "stop")}


def expand(word: str) -> list[str]:
    """A word of a command line as a shell passes it on."""
    return sorted(map(str, Path().glob(word))) if "*" in word else [word]


def write_pipeline() -> None:
    """A pipeline of seconds whose network starts from a file, and the YAML that describes that file."""
    sites = [{"config": f"../site_configs/synthetic/{name}.yaml"} for name in ("chexpert", "vindr")]
    keys: dict[str, Any] = {"extends": "source_addition_samples.yaml", "sites": sites, "k": [1, 2]}
    for setting in SMALL:
        name, _, value = setting.partition("=")
        section, _, key = name.partition(".")
        keys |= {section: keys.get(section, {}) | {key: yaml.safe_load(value)} if key else yaml.safe_load(value)}
    Path("pipelines/small.yaml").write_text(yaml.safe_dump(keys))
    options = load_pipeline(Path("pipelines/small.yaml")).resolve().model
    torch.save(build_model(options, len(DISEASES), 1).state_dict(), "start.pth")
    keys["model"]["initial_weights"] = "start.pth"
    Path("pipelines/small.yaml").write_text(yaml.safe_dump(keys))
    described = {"model": options.model_dump(), "diseases": list(DISEASES), "preprocess": keys["preprocess"]}
    Path("start.yaml").write_text(yaml.safe_dump(described))


def stand_in_for_flower(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower need not be installed: messages go straight to hospitals that read the files of `federation init`."""

    def line_to_hospitals(server: object) -> StraightLine:
        folders = list(Path("trial/hospitals").iterdir())
        for folder in folders:
            shutil.copy("start.pth", folder)  # as docs/deployment.md asks for
            open_log(read_hospital(folder))
        return StraightLine({folder.name: read_hospital(folder) for folder in folders})

    line = SimpleNamespace(locate_server=lambda *_, **__: SimpleNamespace(nodes=dict), FlowerLine=line_to_hospitals)
    superlink = SimpleNamespace(serve=lambda federation, *, insecure: federation.operator_secret.read_text())
    for module in ("hospital", "run", "server"):
        monkeypatch.setattr(f"chestfed.leaves.federation.commands.{module}.require_flower", lambda: None)
    connection = SimpleNamespace(check_connection=lambda hospital, *, insecure: [])
    monkeypatch.setitem(sys.modules, "chestfed.leaves.federation.flower.connection", connection)
    monkeypatch.setitem(sys.modules, "chestfed.leaves.federation.flower.line", line)
    monkeypatch.setitem(sys.modules, "chestfed.leaves.federation.flower.superlink", superlink)
    monkeypatch.setattr(conversation, "time", Clock())
