"""When failures end the search: so many in a row, or too large a share; the sentence names their common cause."""

from __future__ import annotations

from collections import Counter

from resnas.errors import ResnasError
from resnas.results import COUNTED
from resnas.search.opening import trial_folder
from resnas.study import Study

SHOWN_CAUSES = 3


class Failures:
    """The failures of one run of the search."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._in_a_row: list[str] = []
        self._all: list[str] = []
        self._ended = 0

    def note(self, ending: str, reason: str, number: int) -> None:
        """Take up an ending.

        Raises:
            ResnasError: trials fail so often that something must be wrong that more trials will not mend.
        """
        self._ended += ending in COUNTED
        self._in_a_row = [*self._in_a_row, reason] if ending in ("failed", "retried") else []
        self._all += [reason] if ending == "failed" else []
        search = self._study.search
        if len(self._in_a_row) >= search.max_failures:
            raise ResnasError(self._sentence(f"{len(self._in_a_row)} trials in a row failed", self._in_a_row, number))
        if self._ended >= 2 * search.max_failures and len(self._all) > search.max_failure_share * self._ended:
            share = f"{len(self._all)} of {self._ended} trials failed, more than search.max_failure_share allows"
            raise ResnasError(self._sentence(share, self._all, number))

    def _sentence(self, what: str, reasons: list[str], number: int) -> str:
        common = Counter(reasons).most_common(SHOWN_CAUSES)
        causes = "; ".join(f"{reason} ({times} times)" if times > 1 else reason for reason, times in common)
        more = f"; and {len(set(reasons)) - SHOWN_CAUSES} other reasons" if len(set(reasons)) > SHOWN_CAUSES else ""
        log = trial_folder(self._study, number) / "log.txt"
        return f"{what}: {causes}{more} (see {log}); go on after a remedy with the same command"
