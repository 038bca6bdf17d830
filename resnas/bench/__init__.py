"""What depth mixing costs: time per training step, peak memory and time per generated token, against `fixed`.

`case` says what is measured, without torch; `measure` and `peers` do it in processes of their own; `run` asks them.
"""

from resnas.bench.case import Case, Measured, Variant, rows
from resnas.bench.run import Job, circumstances, jobs, measured

__all__ = ["Case", "Job", "Measured", "Variant", "circumstances", "jobs", "measured", "rows"]
