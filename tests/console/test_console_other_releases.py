"""A member of another release lacks some field of what it tells: every page is shown, and knows what is not told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import field
from pathlib import Path
from typing import Any

import pytest
from admin.admin_node import MX2, OURS, FakeNode, a_node, ask, attempted, fill, held, meet, peer, received, serving

from shadowrelay.admin.access import Access
from shadowrelay.console.app import Console
from shadowrelay.core.delivery.settling import Ending
from shadowrelay.core.operating import ActAnswer
from shadowrelay.core.steps import Operate, Unanswered
