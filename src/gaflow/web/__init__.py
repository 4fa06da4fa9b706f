"""The explorer: a page and a JSON API that explain texts, and solve their networks again when they are changed."""

from gaflow.web.application import create_app
from gaflow.web.server_settings import Limits, ServerSettings

__all__ = ["Limits", "ServerSettings", "create_app"]
