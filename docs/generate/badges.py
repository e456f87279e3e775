"""The badges of the README: version, Python and license as drawings that need no service.

    python -m docs.generate.badges

writes `docs/images/badge_*.svg` anew, after a change of the version or of the Pythons that are tested.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import yaml

from chestfed._version import __version__

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
#: Units that a letter and the margins of a field take.
_LETTER, _MARGIN = 7, 12


def draw_badges() -> dict[str, str]:
    """Name of each file -> its SVG."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    first, *_, last = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    values = {"version": __version__, "Python": f"{first} to {last}", "license": project["license"]}
    return {f"badge_{name.lower()}.svg": _draw(name, value) for name, value in values.items()}


def _draw(name: str, value: str) -> str:
    left, right = (len(text) * _LETTER + _MARGIN for text in (name, value))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img">\n'
        f"<title>{name} {value}</title>\n"
        f'<rect width="{left + right}" height="20" rx="3" fill="#0b4f8a"/>\n'
        f'<path d="M3 0H{left}V20H3A3 3 0 0 1 0 17V3A3 3 0 0 1 3 0" fill="#4d5358"/>\n'
        '<g fill="#fff" text-anchor="middle" font-family="Verdana, DejaVu Sans, sans-serif" font-size="11">\n'
        f'<text x="{left / 2:g}" y="14">{name}</text>\n'
        f'<text x="{left + right / 2:g}" y="14">{value}</text>\n'
        "</g>\n</svg>\n"
    )


if __name__ == "__main__":
    for file, svg in draw_badges().items():
        (IMAGES / file).write_text(svg, encoding="utf-8")
