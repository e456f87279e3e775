"""One file adds one of each: a copy of the tree with seven files more has seven parts more, and the rest as before."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from tests.leaves.test_removal import PROGRAM, ROOT, copy_tree, describe

EXAMPLES: Final = ROOT / "docs" / "examples"

DESIGN: Final = '''
"""Half of the steps, and all of them."""

from functools import cached_property

from pydantic import Field

from chestfed.core.plugins import Options
from chestfed.studies.designs.design import Design, DesignSpec, Finished, Takes, Variant


class Halves(Options):
    """Train with a share of the steps too."""

    share: float = Field(0.5, gt=0, lt=1, description="share of the steps")


class HalvesDesign(Design):
    @cached_property
    def variants(self):
        whole = self.file.resolve()
        steps = int(whole.federated.stage_steps * self.file.design.share)
        part = whole.model_copy(update={"federated": whole.federated.model_copy(update={"stage_steps": steps})})
        return [Variant(part, "a part"), Variant(whole, "all steps")]

    def finish(self, done, out):
        return Finished(out, f"trained with {len(done)} lengths", tuple(one.result for one in done))


HALVES = DesignSpec("halves", HalvesDesign, Halves, takes=frozenset({Takes.COLLECTION}), description="a share of steps")
'''

LEAF: Final = '''
"""A greeting."""

from chestfed.core.leaves import Leaf

LEAF = Leaf(commands={"greet": f"{__name__}:greet"})


def greet() -> None:
    """Greet."""
    print("hello from a leaf")
'''

#: Catalogue -> name of the part, its place in the tree, and its text.
ADDED: Final[dict[str, tuple[str, str, str | Path]]] = {
    "algorithm": ("fedexp", "learning/algorithms/fedexp.py", EXAMPLES / "own_method" / "fedexp.py"),
    "objective": ("focal", "learning/objectives/focal.py", EXAMPLES / "own_method" / "focal.py"),
    "network": ("patches", "learning/models/patches.py", EXAMPLES / "own_method" / "patches.py"),
    "step": ("server_mixing", "learning/exchange/mixing.py", EXAMPLES / "own_method" / "mixing.py"),
    "reader": ("odd_hospital", "data/sites/releases/odd_hospital.py", EXAMPLES / "odd_hospital" / "odd_hospital.py"),
    "design": ("halves", "studies/designs/halves.py", DESIGN),
}

#: What a study of the added parts prints after the description.
STUDY: Final = """
from chestfed.data.sites import load_site_config
reader = load_site_config(Path("odd_hospital.yaml")).reader
pipeline["model"] = {"name": "patches", "width": 8}
pipeline["methods"][0]["server_mixing"] = 0.5
chestfed.run(pipeline, out="mixed", quiet=True)
pipeline["methods"] = [{"algorithm": "fedexp", "objective": {"name": "focal", "gamma": 1.0}}]
added = chestfed.run({**pipeline, "halves": {"share": 0.5}}, out="added", quiet=True)
studies = len(list(Path("added").glob("*/study.json")))
print(json.dumps({"reader": reader.name, "answer": added.answer, "studies": studies}))
"""


@pytest.mark.slow
def test_one_file_adds_one_of_each(tmp_path: Path) -> None:
    before = describe(copy_tree(tmp_path / "before"))
    tree = copy_tree(tmp_path / "after")
    for _, place, text in ADDED.values():
        file = tree / "chestfed" / place
        assert not file.exists()
        shutil.copyfile(text, file) if isinstance(text, Path) else file.write_text(text, encoding="utf-8")
    (tree / "chestfed" / "leaves" / "greeting").mkdir()
    (tree / "chestfed" / "leaves" / "greeting" / "__init__.py").write_text(LEAF, encoding="utf-8")
    shutil.copyfile(EXAMPLES / "odd_hospital" / "odd_hospital.yaml", tree / "odd_hospital.yaml")

    after = describe(tree)
    assert set(after["commands"]) - set(before["commands"]) == {"greet"}
    more = {kind: set(parts) - set(before["catalogues"][kind]) for kind, parts in after["catalogues"].items()}
    assert {kind: parts for kind, parts in more.items() if parts} == {
        kind: {name} for kind, (name, _, _) in ADDED.items()
    }
    assert after["table"] == before["table"]
    of_added: dict[str, Any] = describe(tree, PROGRAM + STUDY)
    assert of_added == {"reader": "odd_hospital", "answer": "trained with 2 lengths", "studies": 2}
