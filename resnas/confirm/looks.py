"""How often each claim has been looked at: a look with other runs than before is a further one, and is judged so."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from resnas.atomic import write_text
from resnas.errors import ResnasError


def number_looks(path: Path, claims: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return the number of each claim's look (1, 2, …), and write down those that are new.

    Args:
        path: of the file that looks are kept in.
        claims: the identities of the runs that each claim is judged by, by the claim's name.

    Raises:
        ResnasError: the file cannot be read or written; without it, no look can be judged.
    """
    try:
        known: dict[str, list[str]] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        numbers = {}
        for name, runs in claims.items():
            digest = hashlib.sha256(json.dumps(sorted(runs)).encode()).hexdigest()[:16]
            looks = known.setdefault(name, [])
            if digest not in looks:
                looks.append(digest)
            numbers[name] = looks.index(digest) + 1
        write_text(path, json.dumps(known, indent=1))
    except (OSError, ValueError, AttributeError) as error:
        raise ResnasError(f"the record of looks {path} cannot be used: {error}") from error
    return numbers
