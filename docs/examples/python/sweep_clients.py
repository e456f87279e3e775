"""Numbers of clients swept in two processes; then results in pandas, and the network of the largest K."""

import chestfed

STUDY = {
    "title": "Digits, two to four clients",
    "extends": "digits_ih",
    "collection": {"clients": 4, "partition": {"dirichlet": 0.5}},
    "federated": {"window": 4, "stages": 1, "stage_steps": 40},
    "evaluation": {"every": 5, "resamples": 0},
}


def main() -> None:
    study = chestfed.run(STUDY, algorithm="codasca", k=[2, 4], jobs=2, quiet=True)
    print(study.table(wide=True))
    last_rounds = study.rounds(k=4).tail(3)
    print(last_rounds[["round", "loss", "auc_positive"]])
    network = study.network(4)
    print(f"{sum(tensor.numel() for tensor in network.parameters()):,} weights")


if __name__ == "__main__":
    main()
