"""Sizing: from traffic and limits to the forms and numbers of engines that keep them, by forecast; pure."""

from .ask import Ask, Limits
from .search import Search, search
from .units import Kept, RoleSize, keeps

__all__ = ["Ask", "Kept", "Limits", "RoleSize", "Search", "keeps", "search"]
