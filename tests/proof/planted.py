"""All planted faults, in the order of a message's life."""

from __future__ import annotations

from .planted_accepting import ACCEPTING
from .planted_database import DATABASE
from .planted_delivering import DELIVERING
from .planted_holding import HOLDING
from .planting import Fault

FAULTS: tuple[Fault, ...] = (*ACCEPTING, *HOLDING, *DELIVERING, *DATABASE)
