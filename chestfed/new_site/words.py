"""Words that spreadsheets use, in the languages that are known here: names of columns, views, splits, sexes, values.

English, German, Spanish, Portuguese, French. All are kept in the form that `plain` gives.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Final


def plain(text: str) -> str:
    """Small letters without accents, words separated by single blanks: `ID_Paciente` and `idPaciente` are alike."""
    spaced = re.sub(r"(?<=[a-zäöüß])(?=[A-Z])", " ", text.strip())
    letters = unicodedata.normalize("NFKD", spaced.casefold().replace("ß", "ss").replace("œ", "oe").replace("æ", "ae"))
    bare = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return " ".join(re.sub(r"[^\w]|_", " ", bare).split())


#: Letters, digits, blanks and signs that divide words; a hyphen between letters; parentheses around words.
_INSIDE: Final = r"(?:[\w\s.,:'’/]|(?<=[^\W\d_])[-\u2010\u2011](?=[^\W\d_]))"
_CLEAR: Final = re.compile(rf"(?=[\w(])(?:{_INSIDE}|\((?=[^\W\d_]){_INSIDE}*\))*(?<=[\w).])")


def is_clear(text: str) -> bool:
    """Whether no sign in a text, all of which `plain` takes away, may turn it round: not so `edema (-)`, `edema?`."""
    return _CLEAR.fullmatch(unicodedata.normalize("NFC", text.strip())) is not None


def word_set(text: str) -> frozenset[str]:
    """Words that stand with commas between them, in `plain` form."""
    return frozenset(plain(word) for word in text.split(","))


#: What a column is -> what it is called.
COLUMNS: Final[Mapping[str, frozenset[str]]] = {
    "image": word_set(
        "image, image id, image index, image name, image path, image file, file, filename, file name, file path, path, "
        "picture, dicom, dicom id, dicom path, sop instance uid, img, img id, bild, bildnummer, datei, dateiname, "
        "pfad, imagen, id imagen, fichero, archivo, nombre archivo, ruta, imagem, arquivo, nome arquivo, caminho, "
        "fichier, nom fichier, chemin"
    ),
    "patient": word_set(
        "patient, patient id, patient nr, patient no, patient number, id patient, pid, pat id, pat nr, mrn, subject, "
        "subject id, person id, case id, hospital number, patientennummer, patienten id, patientenid, patienten nr, "
        "patientin, paciente, id paciente, paciente id, numero paciente, nhc, historia clinica, prontuario, doente, "
        "numero patient, n patient, no de patient, n de patient, identifiant patient, ipp, n paciente, n de paciente, "
        "no paciente, no de paciente, no historia, no historia clinica, numero historia clinica, nr paciente"
    ),
    "study": word_set(
        "study, study id, study instance uid, accession, accession number, accession no, accession nr, exam, exam id, "
        "examination, visit, visit id, untersuchung, untersuchungsnummer, auftragsnummer, fallnummer, estudio, "
        "id estudio, estudio id, examen, id examen, exame, id exame, estudo, etude, n examen, no examen, "
        "numero examen, n estudio, numero estudio, n exame, numero exame"
    ),
    "view": word_set(
        "view, view position, projection, proj, position, view pos, ap pa, pa ap, frontal lateral, orientation, "
        "strahlengang, projektion, aufnahme, aufnahmerichtung, proyeccion, vista, posicion, projecao, incidencia, "
        "posicao, incidence"
    ),
    "split": word_set(
        "split, set, subset, partition, dataset split, data split, dataset, phase, menge, teilmenge, datensatz, "
        "aufteilung, particion, conjunto, subconjunto, particao, divisao, ensemble"
    ),
    "sex": word_set(
        "sex, gender, patient sex, patient gender, geschlecht, geschl, sexo, sexo paciente, genero, sexe, genre, "
        "patientengeschlecht"
    ),
    "age": word_set(
        "age, patient age, age years, years, alter, patientenalter, alter jahre, edad, edad anos, idade, age ans"
    ),
    "reader": word_set(
        "reader, reader id, radiologist, radiologist id, rad id, rater, rater id, annotator, annotator id, observer, "
        "doctor, physician, befunder, radiologe, arzt, lector, radiologo, medico, leitor, radiologista, lecteur, "
        "radiologue"
    ),
    "findings": word_set(
        "finding, findings, finding label, finding labels, label, labels, disease, diseases, diagnosis, diagnoses, "
        "finding name, class, class name, tags, terms, befund, befunde, diagnose, diagnosen, etiqueta, etiquetas, "
        "hallazgo, hallazgos, diagnostico, diagnosticos, achado, achados, rotulo, rotulos, etiquette, etiquettes, "
        "diagnostic"
    ),
    "value": word_set(
        "value, values, present, says, said, status, result, answer, wert, vorhanden, valor, presente, presence, valeur"
    ),
}

VIEWS: Final[Mapping[str, str]] = {
    word: view
    for view, text in {
        "pa": "pa, p a, postero anterior, posteroanterior, posterior anterior, dorsoventral, dorso ventral",
        "ap": "ap, a p, antero posterior, anteroposterior, anterior posterior, ventrodorsal, ventro dorsal",
        "frontal": "frontal, front, frente, face",
        "lateral": "lateral, lat, ll, rl, l, seitlich, seitl, seite, perfil, profil",
        "other": "other, oblique, lordotic, schrag, oblicua, lateral decubitus, decubitus lateral, decubito lateral, "
        "decubitus",
        "unknown": "unknown, unk, unbekannt, desconocido, desconocida, desconhecido, inconnu, inconnue",
    }.items()
    for word in word_set(text)
}
#: Words that may stand beside a view and do not change it: side, thorax, somebody who stands or sits.
_BESIDE_VIEWS: Final = word_set(
    "de, en, em, im, in, the, au, aux, chest, thorax, torax, rx, view, projection, projektion, proyeccion, left, "
    "right, li, re, lks, links, rechts, izq, der, dcha, izquierda, derecha, izquierdo, derecho, esquerda, "
    "direita, esquerdo, direito, gauche, droite, droit, upright, erect, standing, sitting, semi, stehend, stehen, "
    "sitzend, sitzen, pie, bipedestacion, sentado, sentada, debout, assis, assise, ortostatismo, 1, 2"
)
_FRONTAL: Final = word_set("frontal, front, frente, face")
#: Films taken lying, or at the bed: ap where nothing else is said.
_LYING: Final = word_set(
    "supine, portable, mobile, bedside, bed, lying, recumbent, liegend, liegen, bett, bettseitig, supino, supina, "
    "tumbado, tumbada, cama, acostado, acostada, deitado, deitada, leito, horizontal, portatil, couche, couchee, lit, "
    "alite, alitee, dorsal, decubito, decubitus"
)


def view_of(text: str) -> str | None:
    """The view that a cell tells, in words that are known here: `a.p. liegend` is ap, `RX torax LAT izquierda` lateral.

    None for other words, and for the posture of somebody who stands or sits alone: that may be any view.
    """
    rest = [word for word in plain(text).split() if word not in _BESIDE_VIEWS]
    bare = [word for word in rest if word not in _LYING]
    ways = (plain(text).split(), rest, bare, [word for word in bare if word not in _FRONTAL])
    found = next((VIEWS[word] for word in (" ".join(way) for way in ways) if word in VIEWS), None)
    lying = len(bare) < len(rest)
    return "ap" if lying and (found == "frontal" or not bare) and found != "other" else found


SPLITS: Final[Mapping[str, str]] = {
    word: split
    for split, text in {
        "train": "train, training, trn, tr, development, lernmenge, entrenamiento, treino, treinamento, entrainement, "
        "apprentissage",
        "valid": "valid, val, validation, validate, dev, tuning, validierung, validacion, validacao",
        "test": "test, testing, tst, held out, holdout, hold out, evaluation, prufung, testmenge, prueba, teste",
    }.items()
    for word in word_set(text)
}
SEXES: Final[Mapping[str, str]] = {
    word: sex
    for sex, text in {
        "F": "f, female, woman, w, weiblich, frau, femenino, mujer, feminino, mulher, feminin, femme",
        "M": "m, male, man, mannlich, mann, masculino, hombre, varon, homem, masculin, homme",
        "unknown": "u, unknown, o, other, x, d, divers, unbekannt, desconocido, otro, desconhecido, outro, "
        "inconnu, autre",
    }.items()
    for word in word_set(text)
}

#: Beside these as cells (in small letters, as they stand), which `plain` would make empty.
VALUES: Final[Mapping[str, str]] = {
    word: meaning
    for meaning, text in {
        "positive": "1, true, yes, y, t, positive, pos, present, x, +, ++, ja, j, positiv, vorhanden, sí, si, s, "
        "positivo, presente, sim, oui, positif, vrai, verdadero, verdadeiro, wahr",
        "negative": "0, false, no, n, negative, neg, absent, nein, negativ, negativo, ausente, não, nao, non, négatif, "
        "faux, falso, falsch",
        "uncertain": "-1, uncertain, ?, (?), +/-, u, maybe, possible, probable, equivocal, fraglich, unklar, unsicher, "
        "dudoso, incierto, posible, incerto, duvidoso, talvez, douteux, incertain",
        "blank": "n/a, na, nan, none, null, unknown, not mentioned, not assessed, n.a., k.a., -, .",
    }.items()
    for word in (part.strip() for part in text.split(", "))
}

#: Cells of age, sex, view and the like that say nothing.
MISSING: Final = frozenset(
    {"n/a", "na", "n.a.", "nan", "none", "null", "-", "--", "?", ".", "k.a.", "s/d", "nd", "unknown"}
)

NO_FINDING: Final = word_set(
    "normal, no finding, no findings, no abnormality, none, nothing, unremarkable, healthy, clear, "
    "ohne befund, o b, ob, normalbefund, kein befund, keine, unauffallig, gesund, sin hallazgos, sano, "
    "sin alteraciones, sem achados, sem alteracoes, saudavel, ras, aucune anomalie, pas d anomalie, sans anomalie"
)
#: Words before a term, in small letters as they stand, that deny it or doubt it; accents do not matter.
NEGATIONS: Final = (
    *("no", "without", "no evidence of", "no sign of", "no signs of", "negative for", "absence of"),
    *("kein", "keine", "keinen", "ohne", "kein hinweis auf", "kein anhalt für", "ohne hinweis auf"),
    *("kein nachweis von", "kein nachweis eines", "kein nachweis einer", "ohne nachweis von"),
    *("keine zeichen einer", "keine zeichen eines"),
    *("sin", "sin evidencia de", "sin signos de", "no hay", "no se observa", "ausencia de"),
    *("sem", "sem evidência de", "sem sinais de", "não", "não há", "ausência de"),
    *("sans", "sans signe de", "pas de", "pas d'", "pas d’", "absence de", "absence d'", "absence d’"),
    *("pas de signe de", "pas de signe d'", "pas de signe d’"),
)
DOUBTS: Final = (
    *("possible", "probable", "suspected", "questionable", "cannot exclude", "can not exclude", "possibly", "probably"),
    *("suspicion of", "suspicious for", "concerning for", "likely", "may represent", "rule out"),
    *("v.a.", "v. a.", "verdacht auf", "fraglich", "fraglicher", "fragliche", "fragliches"),
    *("möglich", "möglicher", "mögliche", "mögliches"),
    *("posible", "sospecha de", "dudoso", "dudosa", "no se descarta", "no se puede descartar"),
    *("possível", "provável", "suspeita de", "não se descarta", "não se pode excluir", "duvidoso", "duvidosa"),
    *("suspicion de", "suspicion d'", "suspicion d’", "doute sur"),
)
DOUBT_SIGNS: Final = ("(?)", "?")
