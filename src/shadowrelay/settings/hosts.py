"""Defines the settings of the hosts of a route, and of name servers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pydantic import Field, model_validator

from shadowrelay.settings.section import Section
from shadowrelay.settings.values import DialAddress, Duration, Integer


class RouteHostSettings(Section):
    """One of several hosts of a route. ``"a.test:25"`` is short for ``{address = "a.test:25"}``."""

    address: DialAddress = Field(
        description="The host. A string in `hosts` in place of a table is this value."
    )
    preference: Integer = Field(0, ge=0, le=65535, description="Hosts with a lower number come first.")
    weight: Integer = Field(
        1, ge=0, le=65535, description="Its share of the mail, among hosts of the same preference."
    )

    @model_validator(mode="before")
    @classmethod
    def _address_alone(cls, data: Any) -> Any:
        return {"address": data} if isinstance(data, str) else data


class Dns(Section):
    servers: list[DialAddress] = Field(
        [], description="Name servers, by IP address and port. Default: those of the system."
    )
    timeout: Duration = Field(
        timedelta(seconds=5),
        ge=timedelta(milliseconds=100),
        le=timedelta(minutes=5),
        description="Time for the answer to one question, all servers and repeats included.",
    )
