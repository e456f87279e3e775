"""Findings as reports word them, in five languages, with what they say: 1, 0, or ? where they leave it open.

A disease that a finding does not name is absent.
"""

from __future__ import annotations

from typing import Final

_SHORT: Final = {
    "C": "cardiomegaly",
    "E": "edema",
    "K": "consolidation",
    "A": "atelectasis",
    "P": "pleural_effusion",
}

_ENGLISH = """
stable cardiomegaly: C1
cardiomegaly: C1
mild cardiomegaly: C1
moderately enlarged heart: C1
cardiac enlargement: C1
heart is enlarged: C1
unchanged cardiomegaly: C1
borderline cardiomegaly: C?
heart size at the upper limit: C?
enlarged cardiac silhouette: C1
heart is not enlarged: C0
no cardiomegaly: C0
no longer cardiomegaly: C0
cardiomegaly has resolved: C0
no change in cardiomegaly: C1
right lower lobe consolidation: K1
left retrocardiac consolidation: K1
multifocal consolidation: K1
LLL consolidation: K1
no focal consolidation: K0
no new consolidation: K?
airspace opacity in the right base: K?
opacification of the left base: K?
consolidation or atelectasis: K? A?
cannot exclude consolidation: K?
bibasilar atelectasis: A1
subsegmental atelectasis: A1
plate-like atelectasis in the left lower zone: A1
collapse of the left lower lobe: A1
resolved atelectasis: A0
interstitial edema: E1
alveolar edema: E1
mild pulmonary edema: E1
no overt edema: E?
no evidence of pulmonary edema: E0
vascular congestion: E?
non-cardiogenic edema: E1
edema?: E?
possible edema: E?
likely mild interstitial edema: E?
edema has cleared: E0
peripheral edema: E?
small left pleural effusion: P1
large effusion: P1
bilateral effusions: P1
trace right pleural effusion: P1
no large effusion: P?
no left effusion: P?
no significant pleural effusion: P?
no effusion: P0
negative for effusion: P0
without effusion: P0
effusion excluded: P0
no effusion or consolidation: P0 K0
no increase in effusion: P1
blunted costophrenic angle: P?
pericardial effusion:
cardiomegaly with small effusions: C1 P1
small effusions with adjacent compressive atelectasis: P1 A1
cardiomegaly without effusion: C1 P0
effusion with no consolidation: P1 K0
pacemaker with cardiomegaly: C1
history of effusion: P?
drained effusion: P?
degenerative changes of the spine:
scoliosis:
rib fractures:
calcified aorta:
normal:
"""
_GERMAN = """
geringer Pleuraerguss rechts: P1
beidseitige Pleuraergüsse: P1
Erguss links: P1
Randwinkelerguss links: P1
kein Erguss: P0
kein Erguss mehr: P0
kein größerer Erguss: P?
kein Pleuraerguss rechts: P?
Pleuraerguss nicht nachweisbar: P0
rückläufiger Pleuraerguss: P?
V.a. Pleuraerguss: P?
fraglicher Erguss: P?
Perikarderguss:
bekannte Kardiomegalie: C1
deutliche Herzvergrößerung: C1
Herz nicht vergrößert: C0
keine Kardiomegalie: C0
grenzwertige Herzgröße: C?
interstitielles Lungenödem: E1
Oedem: E1
Stauungszeichen: E?
keine Stauung: E?
kein Hinweis auf Lungenödem: E0
Konsolidierung im rechten Unterlappen: K1
Konsolidation Mittellappen: K1
Verschattung rechts basal: K?
keine Konsolidierung: K0
Plattenatelektase links basal: A1
Unterlappenatelektase: A1
streifige Atelektasen beidseits: A1
keine Plattenatelektase: A?
Dystelektase: A?
Belüftungsstörung links basal: A?
Skoliose:
Schrittmacher:
o. B.:
"""
_FRENCH = """
cardiomégalie modérée: C1
cardiomégalie stable: C1
pas de cardiomégalie: C0
coeur de taille normale: C0
œdème pulmonaire: E1
oedème interstitiel: E1
Œdème alvéolaire bilatéral: E1
pas d'œdème: E0
surcharge vasculaire: E?
foyer de condensation LID: K1
condensation du lobe inférieur gauche: K1
foyer de condensation possible: K?
pas de foyer de condensation: K?
opacité basale droite: K?
atélectasie en bande: A1
atélectasies sous-segmentaires: A1
sans atélectasie: A0
épanchement pleural bilatéral: P1
épanchement pleural gauche de faible abondance: P1
pas d'épanchement pleural: P0
pas d’épanchement: P0
absence d'épanchement: P0
disparition de l'épanchement: P0
épanchement péricardique:
suspicion d'épanchement: P?
cardiomégalie et épanchement pleural droit: C1 P1
scoliose:
RAS:
"""
_SPANISH = """
cardiomegalia leve: C1
cardiomegalia: C1
sin cardiomegalia: C0
corazón de tamaño normal: C0
edema agudo de pulmón: E1
edema intersticial: E1
sin signos de edema: E0
consolidación en lóbulo inferior derecho: K1
foco de consolidación basal: K1
posible consolidación: K?
no se descarta consolidación: K?
atelectasias laminares basales: A1
atelectasia subsegmentaria izquierda: A1
sin atelectasias: A0
derrame pleural izquierdo: P1
pequeño derrame pleural bilateral: P1
derrame pericárdico:
no hay derrame pleural: P0
sin derrame ni consolidación: P0 K0
sin derrame significativo: P?
resolución del derrame: P0
escoliosis:
sin hallazgos:
"""
_PORTUGUESE = """
derrame pleural à direita: P1
derrame na base esquerda: P1
sem derrame: P0
não há derrame pleural: P0
sem evidência de edema: E0
cardiomegalia discreta: C1
área cardíaca normal: C0
aumento da área cardíaca: C1
consolidação no lobo inferior: K1
atelectasias laminares bibasais: A1
provável atelectasia: A?
marcapasso:
sem achados:
"""


def vocabulary() -> dict[str, dict[str, float | None]]:
    """Finding -> disease -> whether it is there; None where the finding leaves it open."""
    meant: dict[str, dict[str, float | None]] = {}
    for line in "".join((_ENGLISH, _GERMAN, _FRENCH, _SPANISH, _PORTUGUESE)).split("\n"):
        if not line:
            continue
        finding, _, told = line.rpartition(":")
        truth: dict[str, float | None] = dict.fromkeys(_SHORT.values(), 0.0)
        for letters in told.split():
            truth[_SHORT[letters[0]]] = None if letters[1] == "?" else float(letters[1])
        meant[finding] = truth
    return meant
