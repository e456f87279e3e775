"""The trial of docs/deployment.md, as it is written there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_trial_gives_table_of_one_process(tmp_path: Path) -> None:
    pytest.importorskip("flwr", reason="needs chestfed[flower]")
    page = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    section = page.split("## A trial on one machine")[1].split("\n## ")[0]
    blocks = re.findall(r"```bash\n(.*?)```", section, flags=re.DOTALL)
    command = tmp_path / "bin" / "chestfed"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m chestfed "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    more = {"PATH": f"{command.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "CHESTFED_REPOSITORY": str(ROOT)}
    script = "\n".join(["set -e", *blocks])
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=os.environ | more,
        capture_output=True,
        text=True,
        timeout=2400,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    events = (tmp_path / "runs" / "federation.jsonl").read_text(encoding="utf-8")
    assert '"hospital": "vindr", "event": "started anew"' in events
    trial = ROOT / "docs" / "examples" / "federation" / "trial.yaml"
    alone = [str(command), "study", str(trial), "--out", "one", "--no-tracking"]  # with the limits of the others
    subprocess.run(alone, cwd=tmp_path, env=os.environ | more, check=True, capture_output=True, timeout=1200)
    (over,), (single,) = ((tmp_path / out).glob("synthetic-trial-*/table.csv") for out in ("runs", "one"))
    assert over.parent.name == single.parent.name
    assert over.read_bytes() == single.read_bytes()
