"""`chestfed site probe`."""

from __future__ import annotations

from chestfed.app.commands import options
from chestfed.core.bundled import pipeline_file
from chestfed.core.console import open_console, show_answer


def site_probe(
    pipeline: options.Pipeline,
    data: options.PipelineData = None,
    cache: options.Cache = options.AUTO,
    skip_unreadable: options.SkipUnreadable = False,
    set_: options.Set = None,
) -> None:
    """Measure how well a linear model on small images names the hospital, and whether that is a shortcut to the label.

    Logistic regression on images of 24 x 24 pixels, at most 1,000 of each hospital, names the hospitals of patients
    that it has not seen. Then, at the test images of the target, the AUC of the log odds "another hospital" for each
    disease: far from 0.5, a model can use the hospital in place of the disease. An image or patient that is probed at
    two hospitals is refused, or left out, as in a study (`overlap`). Names no patient and no image.

    Example:

        chestfed site probe real_films --data radiographs
    """
    with options.quick_imports():
        from chestfed.app.commands.progress import Bars
        from chestfed.core.errors import ConfigError
        from chestfed.leaves.site_probe.probe import probe_study, render
        from chestfed.studies.experiment.loading import load_pipeline
        from chestfed.studies.experiment.providers import provide
        from chestfed.studies.training.data.sites import resolve_data_root

    console, file = open_console(), pipeline_file(pipeline)
    loaded = load_pipeline(file, set_ or []).resolve()
    if loaded.collection is not None:
        raise ConfigError(f"{file}: a collection of images has no hospitals to name", kind="too few sites", sites=0)
    root = resolve_data_root(loaded, data)
    provide(loaded, root)
    with Bars(console) as bars:
        probe = probe_study(loaded, file, root, cache, skip_unreadable=skip_unreadable, progress=bars.decoding)
    console.print(render(probe))
    for sentence in probe.describe_shared():
        console.print(sentence)
    show_answer(console, probe.sites.describe(), **probe.numbers)
