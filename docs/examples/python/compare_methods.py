"""Methods compared over training seeds; everything is a pandas table."""

import pandas as pd

import chestfed

SHORT = ["collection.clients=3", "federated.window=4", "federated.stages=1", "federated.stage_steps=24"]


def main() -> pd.DataFrame:
    methods = ["codasca", {"name": "slow", "algorithm": "fedavg", "local_lr": 0.05}]
    comparison = chestfed.run(
        "digits_ih", methods=methods, seeds=2, overrides=[*SHORT, "evaluation.every=3"], jobs=2, quiet=True
    )
    print(comparison.table(wide=True))
    print(comparison.settings()[["local_lr", "window", "steps", "MB sent", "chosen"]])
    curves = comparison.curves().pivot_table(index="round", columns="model", values="mean_auc")
    print(curves.tail(3))
    print(comparison.significance()[["model", "disease", "difference", "low", "high", "p"]])
    return comparison.by_seed()


if __name__ == "__main__":
    main()
