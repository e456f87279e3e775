"""`chestfed study --cluster FILE`: each study is a job of a Slurm cluster, sent by submitit.

The command reads the labels, fills the cache, sends the jobs and waits. A job that reaches its time limit or is
preempted is queued again and resumes from its run folder; one that fails is named, and the others go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field

from chestfed.core.bundled import install_command
from chestfed.core.config import StrictModel, load_config
from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.core.processes import stopping
from chestfed.reports.tracking.declaration import RECORDS
from chestfed.studies.executors import ExecutorSpec
from chestfed.studies.experiment.device import prepare_machine
from chestfed.studies.jobs import refuse_engine
from chestfed.studies.running import Executor, Job, Studies, note
from chestfed.studies.training.assemble import Deployment
from chestfed.studies.training.reporting import Reporters
from chestfed.studies.training.run import StudyResult, run_study

#: Time limits after which a job is queued again; submitit's own 3 would end a study of days under a limit of hours.
_MOST_TIME_LIMITS: Final = 10_000


class Cluster(StrictModel):
    """Settings by which jobs are sent."""

    scheduler: Literal["slurm", "local"] = Field("slurm", description="local: as processes of this machine, to try it")
    parameters: dict[str, int | float | str | bool] = Field(
        {},
        description="of each job, as submitit calls them: timeout_min, cpus_per_task, gpus_per_node, mem_gb, "
        "slurm_partition, slurm_account, ...",
    )


class ClusterExecutor(Executor):
    """Sends the jobs, of which at most `limit` run at a time, and waits for their results.

    `file` holds a `Cluster`. Jobs record themselves if a `tracking_uri` is given, which has to be that of a server.
    """

    elsewhere = True

    def __init__(self, file: Path, limit: int, tracking_uri: str | None) -> None:
        self._file, self._limit, self._tracking_uri = file, limit, tracking_uri

    def check(self, studies: Studies) -> None:
        """Errors in the file are reported before any image is read."""
        load_config(self._file, Cluster)
        refuse_engine(studies)

    def __call__(self, jobs: Sequence[Job], deployment: Deployment) -> list[StudyResult]:
        """The results of all jobs.

        Raises `ConfigError` if submitit or Slurm is not there; `ChestfedError` after all have ended, if some failed.
        """
        return _run_on_cluster(jobs, self._limit, self._file, self._tracking_uri)


CLUSTER = ExecutorSpec("cluster", ClusterExecutor)


def _run_on_cluster(jobs: Sequence[Job], at_once: int, file: Path, tracking_uri: str | None) -> list[StudyResult]:
    logs = jobs[0].out.absolute() / "jobs"
    cluster = load_config(file, Cluster)
    executor, as_completed = _executor(cluster, at_once, logs, file)
    first = len(jobs) if cluster.scheduler == "slurm" else at_once  # Slurm itself bounds how many of an array run
    with executor.batch():
        sent = [executor.submit(JobTraining(), job, tracking_uri) for job in jobs[:first]]
    note(f"sent {len(sent)} of {len(jobs)} jobs ({sent[0].job_id} ...); their logs are in {logs}")
    failed = {}
    for number, task in enumerate(as_completed(sent, poll_frequency=2), start=1):
        label, error = jobs[sent.index(task)].label, task.exception()
        if error is not None:
            failed[label] = _reason(error)
        note(f"{number}/{len(jobs)}: {label}{' failed' if error else ''}")
        if len(sent) < len(jobs):  # `as_completed` looks at the list anew each time
            sent.append(executor.submit(JobTraining(), jobs[len(sent)], tracking_uri))
    if failed:
        text = "\n".join(f"{label}: {why}" for label, why in failed.items())
        raise ChestfedError(
            f"{len(failed)} of {len(sent)} jobs failed; their logs are in {logs}\n{text}\n"
            "The same command runs what is missing",
            kind="jobs failed",
            jobs=list(failed),
        )
    return [task.result() for task in sent]


def _reason(error: Exception) -> str:
    """The line of submitit's report that says why a job ended: the last one of a trace, the second if there is none."""
    head, *traces = str(error).split(f"\n{'-' * 22}\n")
    return (traces[0].strip().splitlines() if traces else head.splitlines()[:2])[-1]


def _executor(cluster: Cluster, at_once: int, logs: Path, file: Path) -> tuple[Any, Any]:
    """Make what sends jobs, and what waits for them."""
    try:
        import submitit
        from submitit.helpers import as_completed
    except ImportError:
        raise ConfigError(f"--cluster needs submitit: {install_command('cluster')}") from None
    bounds = {"slurm_array_parallelism": at_once} if cluster.scheduler == "slurm" else {}
    try:
        executor = submitit.AutoExecutor(
            folder=logs, cluster=cluster.scheduler, slurm_max_num_timeout=_MOST_TIME_LIMITS
        )
        executor.update_parameters(name="chestfed", **bounds, **cluster.parameters)
    except (RuntimeError, NameError, TypeError, ValueError, AssertionError) as error:
        raise ConfigError(f"{file}: {error}") from None
    return executor, as_completed


class JobTraining:
    """Training that a job does."""

    def __call__(self, job: Job, tracking_uri: str | None) -> StudyResult:
        """Train one study on the node's own device, or what is left of it.

        Raises `ChestfedError` if a signal has asked the job to end; submitit passes on no other kind of end. Its own,
        before the time limit, comes to `checkpoint`.
        """
        record = [RECORDS.find("mlflow").make(job.out, tracking_uri)] if tracking_uri else []
        experiment = replace(job.experiment, machine=prepare_machine(job.experiment.pipeline.runtime))
        try:
            with stopping.handle_signals():
                return run_study(experiment, job.name, job.out, Reporters(record))
        except stopping.Stopped as stopped:
            raise ChestfedError(f"{stopped}; its state is saved", kind="stopped") from None

    def checkpoint(self, job: Job, tracking_uri: str | None) -> Any:
        """Called by submitit when the job's time is up: it is queued again, and resumes from its run folder."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, job, tracking_uri)
