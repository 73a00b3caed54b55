"""What can go wrong with a run, in words.

TrainingError
InvalidJob           job.json is no job
InvalidSetting       the environment or the command line contradicts itself
DataError            the dataset's folder is not what its index says
CheckpointError      a checkpoint can't be written or used
DamagedError       it is incomplete or altered; an older one may do
DivergedError        the gradient stopped being finite
"""

from collections.abc import Sequence


class TrainingError(Exception):
    """Says all there is to say in its message: it is shown without a traceback."""


class InvalidJob(TrainingError, ValueError):
    """Bad job, with every problem that it has: one line each, `path: reason`."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problems))


class InvalidSetting(TrainingError, ValueError):
    """The environment or the command line lacks something, or contradicts itself."""


class DataError(TrainingError):
    """The dataset's folder is not what its index says, or too small."""


class CheckpointError(TrainingError):
    """A checkpoint can't be written or used."""


class DamagedError(CheckpointError):
    """The checkpoint is incomplete or altered; an older one may do."""


class DivergedError(TrainingError):
    """The gradient stopped being finite."""
