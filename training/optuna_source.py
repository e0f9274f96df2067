"""Configurations of a search from a study of Optuna, by its ask-and-tell interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..imports.extras import explained
from .search import Range, Space, Trial

if TYPE_CHECKING:
    import optuna


class OptunaSource:
    """A study whose sampler proposes configurations.

    Values are reported at each stage's end, with the configuration's steps. A configuration that stops is told as
    pruned, so that samplers such as TPE learn from it.
    """

    def __init__(self, space: Space, study: optuna.Study | None = None, *, seed: int | None = None) -> None:
        """Prepare the study.

        Args:
            space: Parameters by name.
            study: Study that maximises one value; None: a new one in memory, with Optuna's default sampler.
            seed: Seed of a new study's sampler.

        Raises:
            MissingExtra: Optuna is not installed.
        """
        try:
            import optuna
        except ImportError as missing:
            raise explained(missing, "a search by Optuna", "search") from None
        if study is None:
            optuna.logging.set_verbosity(optuna.logging.WARNING)
            study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
        self.study = study
        self._distributions = {name: _distribution(values) for name, values in space.items()}
        self._trials: dict[int, Any] = {}

    def propose(self, number: int) -> Mapping[str, Any]:
        """Return the parameters of the study's next trial."""
        self._trials[number] = trial = self.study.ask(fixed_distributions=self._distributions)
        return dict(trial.params)

    def observe(self, trial: Trial, *, ended: bool) -> None:
        """Report a value, and tell the study of a configuration that trains no further."""
        import optuna

        own = self._trials[trial.number]
        own.report(trial.values[-1], step=trial.steps)
        if not ended:
            return
        if trial.stopped:
            self.study.tell(own, state=optuna.trial.TrialState.PRUNED)
        elif trial.value == trial.values[-1]:
            self.study.tell(own, trial.value)
        else:  # NaN
            self.study.tell(own, state=optuna.trial.TrialState.FAIL)


def _distribution(values: Range | Sequence[Any]) -> Any:
    from optuna import distributions

    if not isinstance(values, Range):
        return distributions.CategoricalDistribution(list(values))
    if values.integer:
        return distributions.IntDistribution(int(values.low), int(values.high), log=values.log)
    return distributions.FloatDistribution(values.low, values.high, log=values.log)
