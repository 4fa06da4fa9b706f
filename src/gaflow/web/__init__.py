"""The explorer's server: explanations as a JSON API on one machine, and networks that can be changed."""

from gaflow.web.application import create_app
from gaflow.web.server_settings import Limits, ServerSettings

__all__ = ["Limits", "ServerSettings", "create_app"]
