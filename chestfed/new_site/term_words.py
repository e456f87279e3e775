"""Words that stand around the name of a disease in a finding, and those of findings that have nothing to do with one.

English, German, Spanish, Portuguese, French; all in the form that `plain` gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chestfed.new_site.words import word_set


def _inflected(stems: str, endings: str) -> frozenset[str]:
    return frozenset(stem + ending for stem in word_set(stems) for ending in endings.split("/"))


#: Words that say nothing of their own.
FILLERS: Final = word_set(
    "a, an, the, of, in, at, on, to, is, are, seen, noted, present, there, der, die, das, des, dem, den, ein, eine, "
    "einer, eines, einem, einen, im, am, an, zu, de, du, des, d, l, la, le, les, au, aux, une, en, del, el, los, "
    "las, una, al, da, do, das, dos, em, na, nas, nos, um, uma"
)
#: Words without which the name of a disease means the same, so that denying both denies the disease.
NEUTRAL: Final = FILLERS | word_set(
    "pulmonary, lung, lungs, focal, pulmonar, pulmonares, pulmonaire, pulmonaires, pulmon, pulmao, poumon, lunge"
)
#: Words of place, shape, degree and time: with them a disease is there as well; denied, they deny only a part.
MODIFIERS: Final = (
    word_set(
        "left, right, bilateral, unilateral, both, basal, basilar, bibasal, bibasilar, base, bases, lower, upper, "
        "middle, mid, lobe, lobes, lobar, zone, zones, field, fields, side, sided, apical, perihilar, retrocardiac, "
        "lingula, lingular, rll, lll, rul, lul, rml, central, posterior, anterior, segmental, subsegmental, linear, "
        "plate, like, platelike, discoid, round, rounded, laminar, band, bandlike, streaky, compressive, passive, "
        "patchy, multifocal, diffuse, confluent, dense, extensive, scattered, multiple, interstitial, alveolar, "
        "cardiogenic, adjacent, associated, layering, loculated, subpulmonic, fissural, mild, mildly, minimal, "
        "moderate, moderately, severe, severely, small, tiny, large, massive, marked, markedly, slight, slightly, "
        "trace, significant, stable, unchanged, persistent, persisting, chronic, acute, new, increased, increasing, "
        "worsening, worsened, progressive, recurrent, residual, known"
    )
    | word_set(
        "links, rechts, beidseits, unterlappen, oberlappen, mittellappen, unterfeld, oberfeld, mittelfeld, lappen, "
        "gering, basisnah"
    )
    | _inflected(
        "beidseitig, linksseitig, rechtsseitig, link, recht, basal, gering, geringgradig, leicht, leichtgradig, "
        "massig, massiggradig, mittelgradig, ausgepragt, deutlich, schwer, hochgradig, massiv, klein, gross, "
        "chronisch, akut, neu, bekannt, unverandert, konstant, zunehmend, progredient, persistierend, streifig, "
        "plattenformig, fleckig, dorsal, retrokardial, interstitiell, alveolar, subsegmental, segmental, diffus, "
        "gekammert, diskret",
        "/e/er/es/en/em",
    )
    | _inflected(
        "gauche, droit, droite, bilaterale, bilateraux, basale, bibasale, lobe, inferieur, inferieure, superieur, "
        "superieure, moyen, moyenne, minime, modere, moderee, discret, discrete, leger, legere, petit, petite, "
        "abondant, abondante, important, importante, severe, massif, massive, inchange, inchangee, connu, connue, "
        "chronique, aigu, aigue, nouveau, nouveaux, nouvelle, persistant, persistante, interstitiel, interstitielle, "
        "alveolaire, segmentaire, lineaire, bande, foyer, plage, lame, retrocardiaque, systematise, systematisee, "
        "cloisonne, enkyste, lobaire, faible, abondance",
        "/s",
    )
    | word_set("lid, lsd, lig, lsg, lm, sous")
    | _inflected(
        "izquierd, derech, moderad, sever, pequen, minim, discret, ligerament, liger, masiv, marcad, cronic, agud, "
        "nuev, conocid, progresiv, segmentari, subsegmentari, retrocardiac, encapsulad, loculad, amb, esquerd, "
        "direit, acentuad, volumos, nov, inalterad",
        "o/a/os/as",
    )
    | word_set(
        "bilaterales, basales, lobulo, lobulos, inferior, inferiores, superior, superiores, medio, media, leve, "
        "leves, grave, graves, gran, grande, grandes, importante, importantes, estable, estables, persistente, "
        "persistentes, intersticial, intersticiales, alveolares, laminares, lineal, lineales, subsegmentales, "
        "segmentarias, foco, focos, banda, bandas, lado, hemitorax, bilaterais, basais, lobo, lobos, estavel, "
        "estaveis, lineares, segmentar, segmentares, subsegmentar, subsegmentares, intersticiais, bibasais, terco"
    )
) - NEUTRAL
AND: Final = word_set("and, und, sowie, et, y, e, with, mit, con, avec, com")
#: Behind a denial both are denied; elsewhere it is not told which is there.
OR: Final = word_set("or, nor, oder, noch, ou, o, u, ni, bzw")
#: Words that deny, wherever they stand, and words that, alone behind a finding, take it back.
DENY: Final = word_set(
    "no, not, without, negative, nor, kein, keine, keinen, ohne, nicht, sin, sem, nao, sans, pas, ni, absence, ausencia"
)
TAKE_BACK: Final = DENY | word_set(
    "absent, resolved, excluded, ruled, out, cleared, none, nein, ausgeschlossen, nachweisbar, nachweis, negativ, "
    "negativo, ausente, descartado, descartada, resuelto, resuelta, resolvido, excluido, absente, exclu, exclue, "
    "resolu, resorbe, possible, possibly, probable, probably, likely, unlikely, questionable, suspected, equivocal, "
    "uncertain, doubtful, fraglich, unsicher, moglich, unwahrscheinlich, posible, dudoso, dudosa, improbable, "
    "possivel, provavel, duvidoso, duvidosa, douteux, douteuse, incertain, 0"
)
#: Words that take back only behind one that denies.
SEEN: Final = word_set("longer, seen, present, more, mehr")
#: Places in Portuguese, before which `no` is not a denial but means in the.
PLACES_AFTER_NO: Final = word_set("pulmao, lobo, hemitorax, lado, terco, campo, apice")

#: Terms of findings other than the diseases, all of whose words, but for those of place and degree, are here.
OTHER_FINDINGS: Final = word_set(
    "fracture, fractures, rib, ribs, clavicle, scoliosis, kyphosis, spondylosis, osteophyte, osteophytes, "
    "degenerative, spine, spinal, thoracic, vertebral, osteopenia, osteoporosis, arthrosis, pacemaker, pacer, wire, "
    "wires, sternotomy, sternal, catheter, catheters, tube, tubes, line, lines, picc, port, venous, endotracheal, "
    "nasogastric, tracheostomy, device, devices, support, prosthesis, implant, calcified, "
    "calcification, calcifications, aorta, aortic, atherosclerosis, tortuous, arch, diaphragm, hemidiaphragm, "
    "elevated, elevation, goiter, mastectomy, surgical, clip, clips, bronchiectasis, "
    "foreign, body, rippenfraktur, rippenfrakturen, fraktur, frakturen, skoliose, kyphose, "
    "schrittmacher, herzschrittmacher, portkatheter, katheter, zvk, verkalkung, verkalkungen, aortensklerose, "
    "aortenelongation, wirbelsaule, degenerativ, spondylose, drahtcerclagen, "
    "osteoporose, struma, zwerchfellhochstand, bronchiektasen, scoliose, cyphose, cote, cotes, costale, costales, "
    "sonde, sondes, aortique, aorte, atherome, arthrose, deroulement, goitre, prothese, bronchectasies, escoliosis, "
    "cifosis, fractura, fracturas, costal, costales, marcapasos, cateter, sonda, calcificacion, calcificaciones, "
    "aortica, elongacion, ateromatosis, espondilosis, protesis, bocio, bronquiectasias, escoliose, cifose, fratura, "
    "fraturas, marcapasso, calcificacao, calcificacoes, ateromatose, espondilose, protese, "
    "bocio"
)
#: Parts of words that tell that a term is about a disease, though it may not be understood.
ABOUT: Final[Mapping[str, tuple[str, ...]]] = {
    "cardiomegaly": (
        *("cardiom", "kardiom", "heart", "herz", "cardiac", "cardiaq", "coeur", "corazon", "coracao", "silhouett"),
        "silueta",
    ),
    "edema": ("edem", "odem", "congest", "stauung", "surcharge", "kerley", "stase"),
    "consolidation": (
        "consolid",
        "konsolid",
        "condens",
        "opaci",
        "verschattung",
        "verdichtung",
        "airspace",
        "bronchog",
    ),
    "atelectasis": ("atelec", "atelek", "collaps", "kollaps", "colaps", "belufungsst", "beluftungsst"),
    "pleural_effusion": ("effusion", "erguss", "erguess", "epanch", "derrame", "fluid", "costophren", "randwinkel"),
    "infiltration": ("infiltr",),
    "mass": ("raumforderung", "lung lesion", "lesion pulmon"),
    "nodule": ("nodul", "rundherd", "lung lesion", "lesion pulmon", "granulom"),
    "pneumonia": ("pneumoni", "neumoni", "lungenentz"),
    "pneumothorax": ("pneumothora", "pneumotora", "neumotora"),
    "emphysema": ("emphys", "enfisem", "copd", "hyperinfl"),
    "fibrosis": ("fibros",),
    "pleural_thickening": (
        "thickening",
        "pleuraverdick",
        "schwiele",
        "engrosamiento",
        "espessamento",
        "epaississ",
        "plaque",
    ),
    "hernia": ("hernia", "hernie"),
}
