"""The tasks by the name that they have in YAML; another one is named by `package.module:Class`.

Importing this loads neither torch nor scikit-learn: a task loads them when it loads its data.
"""

from __future__ import annotations

from resnas.tasks.digits import Digits
from resnas.tasks.khop import KHop
from resnas.tasks.task import Task
from resnas.tasks.text import Text

TASKS: dict[str, type[Task]] = {"text": Text, "digits": Digits, "khop": KHop}
