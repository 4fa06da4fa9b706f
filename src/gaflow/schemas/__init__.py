"""What stored files must hold, described in JSON Schema, and checks of their content against it."""

from gaflow.schemas.check import SCHEMAS, check, check_arrays, check_format
from gaflow.schemas.published import schema

__all__ = ["SCHEMAS", "check", "check_arrays", "check_format", "schema"]
