"""A study over real hospitals: each keeps its images, a server keeps the rounds. Built on Flower (extra `flower`)."""

from chestfed.core.leaves import Leaf

LEAF = Leaf(
    groups={
        "federation": "Run a study across real hospitals, each of which keeps its images. Needs an environment with "
        "Flower: docs/deployment.md."
    },
    commands={
        "federation init": f"{__name__}.commands.server:federation_init",
        "federation add": f"{__name__}.commands.server:federation_add",
        "federation remove": f"{__name__}.commands.server:federation_remove",
        "federation renew": f"{__name__}.commands.server:federation_renew",
        "federation server": f"{__name__}.commands.server:federation_server",
        "federation run": f"{__name__}.commands.run:federation_run",
        "federation status": f"{__name__}.commands.server:federation_status",
        "federation stop": f"{__name__}.commands.server:federation_stop",
        "federation join": f"{__name__}.commands.hospital:federation_join",
        "federation rekey": f"{__name__}.commands.hospital:federation_rekey",
        "federation hospital": f"{__name__}.commands.hospital:federation_hospital",
        "federation audit": f"{__name__}.commands.hospital:federation_audit",
    },
)
