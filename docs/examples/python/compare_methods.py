"""Methods compared over training seeds; everything is a pandas table."""

import chestfed

SHORT = ["collection.clients=3", "federated.window=4", "federated.stages=1", "federated.stage_steps=24"]


def main() -> None:
    methods = ["codasca", {"name": "slow", "algorithm": "fedavg", "local_lr": 0.05}]
    comparison = chestfed.run(
        "digits_ih", methods=methods, seeds=2, overrides=[*SHORT, "evaluation.every=3"], quiet=True
    )
    print(comparison.table(wide=True))
    print(comparison.settings()[["local_lr", "window", "rounds", "MB sent", "chosen"]])
    curves = comparison.curves().pivot_table(index="round", columns="model", values="mean_auc")
    print(curves.tail(3))
    print(comparison.significance()[["model", "disease", "difference", "low", "high", "p"]])
    print(comparison.by_seed())


if __name__ == "__main__":
    main()
