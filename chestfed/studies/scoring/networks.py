"""Networks for weights from a file. A model file is untrusted input: its word alone must not run code.

A network is built on a model file's word only if it is built in or installed under that name, is a `ModelSpec` or a
`torch.nn.Module` class, or is a network of timm, torchvision or MONAI; nothing is downloaded and no other file is read
for it. The frozen network below a head is a built-in one, whose weights are of the file that the head names if it is
the model file of a study, else random or published ones that are here; they must have the digest that the head has.
Looking a name up imports its module, so modules of the standard library, and modules that came beside the model, are
refused before that.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import Tensor, nn

from chestfed.core.errors import ConfigError
from chestfed.learning.models import (
    FEATURES,
    MODELS,
    ModelOptions,
    build_model,
    convolve_channels_last,
    get_factory,
    load_trained,
    network_options,
)
from chestfed.learning.models.declaration import IMAGENET
from chestfed.learning.models.pretrained import is_present
from chestfed.studies.experiment.device import Machine

#: Library -> where its networks are. Other functions of theirs read files or run bundles.
_LIBRARIES = {"timm": "timm", "torchvision": "torchvision.models", "monai": "monai.networks.nets"}
#: Arguments of factories that fetch or read weights, and what stands for none. Trained weights replace them anyway.
_STARTS: dict[str, Any] = {
    "pretrained": False,
    "weights": None,
    "weights_backbone": None,
    "checkpoint_path": None,
    "pretrained_path": None,
    "pretrained_cfg": None,
    "pretrained_cfg_overlay": None,
    "cache_dir": None,
}


def find_network(
    header: Mapping[str, Any], path: Path, network: str | None = None
) -> tuple[ModelOptions, tuple[str, ...]]:
    """The network that a model file of chestfed names, or that the user names in its place, and notes.

    Raises `ConfigError` if the description is damaged, or names what is not built on a file's word.
    """
    given = header["model"]
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        text = f"{path}: its description of the network is damaged"
        raise ConfigError(text, kind="damaged description", key="model")
    name = network or given["name"]
    if network is None:
        _refuse_untrusted(name, given, path)
    elif name.partition(":")[0].partition(".")[0] in sys.stdlib_module_names:
        raise ConfigError(
            f"--network {name}: a module of the standard library contains no network",
            kind="module of the standard library",
        )
    chosen = {**given, "name": name, "initial_weights": None}
    try:
        options = network_options(**chosen)
    except ValidationError as error:
        detail = error.errors()[0]
        place = ".".join(map(str, detail["loc"]))
        raise ConfigError(
            f"{path}: its description of the network is damaged, or of another version: '{place}': {detail['msg']}",
            kind="damaged description",
            key="model",
        ) from None
    return options, _changed(name, header.get("model_source"))


def load_network(
    options: ModelOptions, tensors: dict[str, Tensor], outputs: int, path: Path, machine: Machine
) -> tuple[nn.Module, tuple[str, ...]]:
    """The network with these weights, in evaluation mode, and notes.

    Raises `ConfigError` if it cannot be built or the weights do not fit.
    """
    module = build_model(_without_starts(options), outputs, seed=0)
    left = load_trained(module, tensors, str(path), MODELS.find(options.name).renamed)
    notes: tuple[str, ...] = ()
    if left:
        text = f"{len(left)} tensors of the checkpoint do not belong to the network and were ignored"
        notes = (f"{text}, such as '{left[0]}'",)
    if machine.channels_last:
        convolve_channels_last(module)
    return module.to(machine.device).eval(), notes


def _changed(name: str, then: object) -> tuple[str, ...]:
    now = MODELS.digest(name)
    if then == now:
        return ()
    return (
        f"The code of network '{name}' has changed since the model was trained: {now or 'built in'} now, "
        f"{then or 'built in'} then",
    )


def _without_starts(options: ModelOptions) -> ModelOptions:
    """The options without weights to start from."""
    update: dict[str, Any] = {"initial_weights": None}
    factory = get_factory(MODELS.find(options.name))
    if factory is not None:
        given = dict(getattr(options, "options", {}))
        accepted = inspect.signature(factory).parameters
        update["options"] = given | {key: none for key, none in _STARTS.items() if key in given or key in accepted}
    return options.model_copy(update=update)


def _refuse_untrusted(name: str, given: Mapping[str, Any], path: Path) -> None:
    if name == FEATURES and not _is_built_in(given.get("network")):
        text = f"{path}: refused: its features are of a network that would be built on the file's word"
        raise ConfigError(f"{text}. If you trust it: --network '{FEATURES}'", kind="network within a network")
    if name in MODELS.names:
        return
    module, _, attribute = name.partition(":")
    top = module.partition(".")[0]
    advice = "If you trust it, name it yourself: --network 'package.module:Name'"
    if not all(part.isidentifier() for part in [*module.split("."), *attribute.split(".")]):
        text = f"{path}: names the network '{name[:80]}', which is unknown here. {advice}"
        raise ConfigError(text, kind="unknown network")
    if top in sys.stdlib_module_names:
        text = f"{path}: refused: it names '{name}' of Python's standard library as its network"
        raise ConfigError(text, kind="module of the standard library")
    if top in _LIBRARIES and not f"{module}.".startswith(f"{_LIBRARIES[top]}."):
        text = f"{path}: refused: '{name}' is not a network of {top}. {advice}"
        raise ConfigError(text, kind="not a network of the library", library=top)
    if _is_beside(top, path):
        raise ConfigError(
            f"{path}: refused: its network '{name}' is code in the model's folder. Read that code. {advice}",
            kind="code in the model's folder",
        )
    factory = get_factory(MODELS.find(name))
    if factory is not None and not inspect.isclass(factory) and not _library_network(factory):
        raise ConfigError(
            f"{path}: refused: '{name}' is a function, and functions that only a file names are not called. "
            f"{advice}; or declare it as a ModelSpec",
            kind="function",
        )
    arguments = given.get("options")
    arguments = arguments if isinstance(arguments, dict) else {}
    for key in ("model_name", "name"):
        if ":" in str(arguments.get(key)):
            raise ConfigError(
                f"{path}: refused: its network would be downloaded from '{arguments[key]}'. {advice}",
                kind="network to be downloaded",
            )


def _is_built_in(frozen: object) -> bool:
    """Whether the network of features is built in, with random weights, those of a study, or published ones."""
    if isinstance(frozen, str) and frozen.endswith(".safetensors"):
        return True  # the network in that file must be built in
    options = {"name": frozen} if isinstance(frozen, str) else frozen
    if not isinstance(options, dict) or not isinstance(options.get("name"), str):
        return False
    spec, start = MODELS.built_in.get(options["name"]), options.get("initial_weights")
    if spec is None or spec.name == FEATURES or start not in (None, IMAGENET):
        return False
    return start is None or (spec.imagenet is not None and (bool(spec.imagenet.package) or is_present(spec.imagenet)))


def _is_beside(top: str, path: Path) -> bool:
    """Whether a module lies in the model file's own folder or below it."""
    spec = PathFinder.find_spec(top, [str(Path.cwd()), *sys.path])
    places = [] if spec is None else [*(spec.submodule_search_locations or ()), *([spec.origin] if spec.origin else [])]
    files = [Path(place).resolve() for place in places]
    return any(file.is_relative_to(path.resolve().parent) and "site-packages" not in file.parts for file in files)


def _library_network(factory: Any) -> bool:
    """Whether a function of timm, torchvision or MONAI says that it returns a network."""
    home = _LIBRARIES.get(str(factory.__module__).partition(".")[0])
    if home is None or not f"{factory.__module__}.".startswith(f"{home}."):
        return False
    try:
        returned = inspect.get_annotations(factory, eval_str=True).get("return")
    except Exception:
        return False
    return inspect.isclass(returned) and issubclass(returned, nn.Module)
