"""The source-addition study: two training stages for K = 1, 2, ... clients, and the table of their AUCs.

`pipeline.py` is the schema of an experiment's YAML, `data.py` turns its sites into clients and a test set,
`pretrain.py` and `federated.py` are the two stages, `run.py` ties them together and resumes, `plan.py` says
what would run, `table.py` is what comes out.
"""
