"""A job restores one picture file into another; its file `OUT.job.json` repeats it."""

from pnpladmm.jobs.files import file_hashes, job_path, read_job, write_job
from pnpladmm.jobs.job import FOR_BLUR_AND_MAPS, NOT_OPTIONS, Job
from pnpladmm.jobs.run import Failure, Interrupted, Outcome, Skipped, run_job, run_jobs

__all__ = [
    "FOR_BLUR_AND_MAPS",
    "NOT_OPTIONS",
    "Failure",
    "Interrupted",
    "Job",
    "Outcome",
    "Skipped",
    "file_hashes",
    "job_path",
    "read_job",
    "run_job",
    "run_jobs",
    "write_job",
]
