"""Where something else than the model may say which tokens are possible next."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt


class TokenMask(Protocol):
    """Follows one answer token by token, and allows some tokens at each place."""

    def allowed(self) -> npt.NDArray[np.bool_] | None:
        """Which tokens may come next, (vocab,); None when all may."""

    def accept(self, token_id: int) -> None:
        """Take note of the token that came."""
