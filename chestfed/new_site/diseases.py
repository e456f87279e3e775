"""Which disease a hospital's name for one means: by its synonyms in five languages, or by letters that are near."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from chestfed.core.diseases import TITLES
from chestfed.new_site.words import is_clear, plain, word_set

How = Literal["its name", "a synonym", "a spelling near to it"]

#: Disease -> what it is called besides its own name; English, German, Spanish, Portuguese, French.
_SYNONYMS: Final[Mapping[str, str]] = {
    "cardiomegaly": "enlarged heart, heart enlarged, enlargement of the heart, heart enlargement, big heart, "
    "enlarged cardiac silhouette, cardiac enlargement, "
    "cardiomegalie, kardiomegalie, herzvergrösserung, herzvergroesserung, vergrössertes herz, vergroessertes herz, "
    "herz vergrössert, cardiomegalia, corazon agrandado, aumento da area cardiaca, coracao aumentado",
    "edema": "oedema, pulmonary edema, pulmonary oedema, lung edema, lung oedema, edema lung, edema pulmonary, "
    "lungenödem, lungenoedem, ödem, oedem, lungenstauungsödem, edema pulmonar, edema de pulmon, edema agudo de pulmon, "
    "edema agudo pulmonar, oedeme, oedeme pulmonaire, oedeme aigu pulmonaire",
    "consolidation": "lung consolidation, pulmonary consolidation, airspace consolidation, air space consolidation, "
    "konsolidierung, konsolidation, lungenkonsolidierung, consolidacion, consolidacion pulmonar, consolidacao, "
    "consolidacao pulmonar, consolidation pulmonaire, condensacion, condensacion pulmonar, condensacao, "
    "condensation, condensation pulmonaire, condensation alveolaire",
    "atelectasis": "atelectases, atelectatic, lung atelectasis, plate atelectasis, plate like atelectasis, "
    "laminar atelectasis, lobar atelectasis, segmental atelectasis, discoid atelectasis, basal atelectasis, "
    "linear atelectasis, subsegmental atelectasis, atelektase, atelektasen, plattenatelektase, atelectasia, "
    "atelectasias, atelectasia laminar, atelectasie, atelectasies, streifenatelektase, streifenatelektasen, "
    "unterlappenatelektase, unterlappenatelektasen, oberlappenatelektase, mittellappenatelektase, "
    "plattenatelektasen, lappenatelektase, segmentatelektase",
    "pleural_effusion": "effusion, effusions, pleural effusions, pleural fluid, fluid in pleural space, pleuraerguss, "
    "pleuraergüsse, pleuraerguesse, pleuraerguß, erguss, ergüsse, randwinkelerguss, derrames, derrame pleural, "
    "derrame, derrames pleurales, "
    "epanchement pleural, epanchement, pleural effusion loculated, loculated pleural effusion",
    "infiltration": "infiltrate, infiltrates, infiltrat, infiltrado, infiltrados, infiltrado pulmonar, "
    "pulmonary infiltrate",
    "mass": "lung mass, pulmonary mass, raumforderung, masa, masa pulmonar, massa, massa pulmonar, masse pulmonaire",
    "nodule": "nodules, lung nodule, pulmonary nodule, pulmonary nodules, rundherd, lungenrundherd, nodulo, nodulos, "
    "nodulo pulmonar, nodule pulmonaire",
    "pneumonia": "pneumonie, lungenentzündung, lungenentzuendung, neumonia, pneumonias",
    "pneumothorax": "pneumothoraces, neumotorax, pneumotorax, ptx",
    "emphysema": "lung emphysema, pulmonary emphysema, lungenemphysem, emphysem, enfisema, enfisema pulmonar, "
    "emphyseme",
    "fibrosis": "lung fibrosis, pulmonary fibrosis, lungenfibrose, fibrose, fibrosis pulmonar, fibrose pulmonar, "
    "fibrose pulmonaire",
    "pleural_thickening": "thickening of the pleura, pleuraverdickung, pleuraschwiele, engrosamiento pleural, "
    "espessamento pleural, epaississement pleural",
    "hernia": "hiatal hernia, hiatus hernia, hiatushernie, hernie, hernia de hiato, hernia hiatal, hernie hiatale",
}
#: Names that are near to a synonym and mean something else, which yet may go with a disease.
KIN: Final = word_set(
    "enlarged cardiomediastinum, bronchopneumonia, hydropneumothorax, pleural other, lung opacity, "
    "lung lesion, pleural plaque"
)
#: Names that are near to a synonym and mean something else.
OTHERS: Final = KIN | word_set(
    "pericardial effusion, perikarderguss, derrame pericardico, epanchement pericardique, subcutaneous emphysema, "
    "soft tissue emphysema, hautemphysem, joint effusion, pneumoperitoneum, pneumomediastinum, facial edema, "
    "aortic enlargement"
)
#: Names in one word that mean a part of a disease, or one sort of it.
PARTS: Final = word_set(
    "plattenatelektase, plattenatelektasen, streifenatelektase, streifenatelektasen, unterlappenatelektase, "
    "unterlappenatelektasen, oberlappenatelektase, mittellappenatelektase, lappenatelektase, segmentatelektase, "
    "randwinkelerguss, lungenstauungsödem"
)
#: Words that say where, or how much, and do not change which disease it is.
_QUALIFIERS: Final = word_set(
    "left, right, bilateral, both, basal, basilar, mild, minimal, moderate, severe, small, large, marked, slight, "
    "trace, acute, chronic, links, rechts, beidseits, beidseitig, linksseitig, rechtsseitig, kleiner, grosser, "
    "leichte, geringer, basaler, akutes, izquierdo, derecho, izquierda, derecha, leve, moderado, severo, pequeño, "
    "bilaterales, basales, esquerdo, direito, esquerda, direita, moderada, grave, pequeno, gauche, droit, droite, "
    "modere, minime"
)
#: A name in `plain` form -> its disease, and why.
NAMES: Final[Mapping[str, tuple[str, How]]] = {
    **{
        plain(name): (disease, "a synonym")
        for disease, names in _SYNONYMS.items()
        for name in (*names.split(", "), disease.replace("_", " ") + "s")
    },
    **{plain(name): (name, "its name") for name in TITLES},
}
_NEAR: Final = 0.9
#: What may follow a name in an inflected form of it.
_INFLECTIONS: Final = word_set("s, es, e, n, en, r, er, em")
#: A shorter word has too many neighbours.
_SHORTEST: Final = 6


@dataclass(frozen=True)
class Match:
    """A disease, and why a name is taken to mean it."""

    disease: str
    how: How


@lru_cache(maxsize=20_000)
def disease_of(name: str) -> Match | None:
    """The disease that a column or term means; None if it is none of the known ones, or not certain which."""
    if not is_clear(name):
        return None
    word = plain(name)
    found = look_up(word)
    if found is None:
        bare = " ".join(part for part in word.split() if part not in _QUALIFIERS)
        found = look_up(bare) if bare else None
    return found


def look_up(word: str) -> Match | None:
    """The disease of a name in `plain` form, as it is or misspelt."""
    if word in OTHERS:
        return None
    if word in NAMES:
        return Match(*NAMES[word])
    if len(word) < _SHORTEST or any(letter.isdigit() for letter in word):
        return None
    if difflib.get_close_matches(word, OTHERS, n=1, cutoff=_NEAR):
        return None
    comparable = [name for name in NAMES if len(name) >= _SHORTEST and _may_be_misspelt(name, word)]
    near = difflib.get_close_matches(word, comparable, n=5, cutoff=_NEAR)
    diseases = {NAMES[name][0] for name in near}
    return Match(diseases.pop(), "a spelling near to it") if len(diseases) == 1 else None


def _may_be_misspelt(name: str, word: str) -> bool:
    """Whether they have as many words, none with just letters in front or behind, such as `no` or `un`."""
    ours, theirs = word.split(), name.split()
    return len(ours) == len(theirs) and not any(
        our != their
        and (our.endswith(their) or (our.startswith(their) and our.removeprefix(their) not in _INFLECTIONS))
        for our, their in zip(ours, theirs, strict=True)
    )
